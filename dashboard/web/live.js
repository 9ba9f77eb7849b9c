// Keeps a visible page current: it asks every two seconds whether the page has changed, and
// changes only the elements that differ. So focus, selection, scroll and open details stay.
// Without the script, every page works and is reloaded by hand.
(() => {
  "use strict";
  const live = document.getElementById("live");
  let tag = document.body.dataset.tag ?? "", skew = null, answered = Date.now(), asking = false, timer;

  // update makes an element like another. Forms that read keep what is typed in them.
  const update = (old, next) => {
    if (old.isEqualNode(next) || old.nodeName === "FORM" && old.method === "get") return;
    if (old.nodeName !== next.nodeName || old.nodeType !== Node.ELEMENT_NODE ||
        old.id !== next.id || old.getAttribute("href") !== next.getAttribute("href")) return old.replaceWith(next);
    for (const {name} of [...old.attributes]) if (name !== "open" && !next.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const was = [...old.childNodes], is = [...next.childNodes];
    was.slice(is.length).forEach(node => node.remove());
    is.forEach((node, i) => i < was.length ? update(was[i], node) : old.append(node));
  };

  const show = html => {
    const next = new DOMParser().parseFromString(html, "text/html"), main = next.getElementById("main");
    if (!main) return false;
    const link = document.activeElement.getAttribute("href");
    document.title = next.title;
    update(document.getElementById("main"), main);
    if (link && document.activeElement === document.body)
      document.querySelector(`main a[href="${CSS.escape(link)}"]`)?.focus({preventScroll: true});
    return true;
  };

  const ask = async () => {
    if (document.hidden || asking) return;
    clearTimeout(timer);
    asking = true;
    try {
      const answer = await fetch(location.pathname + location.search,
        {headers: tag ? {"If-None-Match": tag} : {}, cache: "no-store", signal: AbortSignal.timeout(5000)});
      const busy = answer.status === 304 || answer.status === 429; // the page stays as it is
      if (busy || show(await answer.text())) {
        answered = Date.now();
        skew = answered - Date.parse(answer.headers.get("Date"));
        if (!busy) tag = answer.headers.get("ETag") ?? "";
        tick();
      }
    } catch { /* asked again */ }
    asking = false;
    timer = setTimeout(ask, 2000);
  };

  // tick shows the age of times by the clock of the leader, and whether it answers.
  const tick = () => {
    if (skew !== null) for (const time of document.querySelectorAll("main time:not(.clock)")) {
      const s = Math.floor((Date.now() - skew - Date.parse(time.dateTime)) / 1000);
      const text = s < 1 ? "just now" : (s < 120 ? s + " s" : s < 7200 ? Math.floor(s / 60) + " min" :
        s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d") + " ago";
      if (time.textContent !== text) time.textContent = text;
    }
    const silent = Date.now() - answered > 10000, text = silent ? "no word from the leader" : document.getElementById("main").dataset.live;
    if (live.textContent !== text) live.textContent = text;
    document.body.classList.toggle("unanswered", silent);
  };

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) answered = Date.now(); // it was not asked while the page was hidden
    ask();
  });
  // The key / leads to the search. It is typed before keyup.
  const slash = event => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    if (event.type === "keyup") document.querySelector("[role=search] input").focus();
  };
  document.addEventListener("keydown", slash);
  document.addEventListener("keyup", slash);
  setInterval(() => document.hidden || tick(), 1000);
  ask();
})();
