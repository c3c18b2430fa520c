// The page works without this file. It answers by key, does not load the page again, and keeps an answer that could
// not be sent until it can be: sending it twice is safe, because the question's id says which one it answers.
"use strict";
(() => {
  const main = document.querySelector("main[data-live]");
  if (!main) return;
  const UNSENT = "prefkin-unsent";
  let busy = false, timer = 0, pause = 500;

  const kept = () => { try { return JSON.parse(localStorage.getItem(UNSENT)); } catch { return null; } };
  const keep = (sending) => {
    try { sending ? localStorage.setItem(UNSENT, JSON.stringify(sending)) : localStorage.removeItem(UNSENT); } catch { /* private mode */ }
  };
  const notice = (text) => {
    const place = document.getElementById("notice");
    if (place) { place.textContent = text; place.hidden = !text; }
  };

  async function send(action, fields) {
    if (busy) return;
    busy = true;
    clearTimeout(timer);
    main.classList.add("busy");
    keep({ action, fields });
    try {
      const response = await fetch(action, {
        method: "POST", body: new URLSearchParams(fields), headers: { "X-Part": "1", Accept: "text/html" }, credentials: "same-origin",
      });
      if (response.status === 429 || response.status >= 500) throw new Error("later");
      keep(null);
      pause = 500;
      if (response.ok) show(await response.text());
      else location.assign("/");
    } catch (problem) {
      const why = problem.message === "later" ? "The server cannot keep anything just now." : "No connection.";
      notice(`${why} Your answer is kept here and will be sent as soon as possible.`);
      timer = setTimeout(again, pause);
      pause = Math.min(2 * pause, 10000);
    } finally {
      busy = false;
      main.classList.remove("busy");
    }
  }

  function show(html) {
    const open = [...main.querySelectorAll("details[open]")].map((one) => one.id);
    main.innerHTML = html; // written by our own server, from escaped templates
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    document.getElementById("prompt")?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }

  function again() {
    const sending = kept();
    if (sending) send(sending.action, sending.fields);
  }

  main.addEventListener("submit", (event) => {
    event.preventDefault();
    if (kept()) return again(); // one at a time, in order
    const fields = Object.fromEntries(new FormData(event.target, event.submitter));
    send(event.submitter?.getAttribute("formaction") ?? event.target.getAttribute("action"), fields);
  });

  const press = (selector) => main.querySelector(selector)?.click();
  const toggle = (id) => { const one = document.getElementById(id); if (one) { one.open = !one.open; one.scrollIntoView({ block: "nearest" }); } };
  const keys = {
    1: () => press("button[value=left]"), ArrowLeft: () => press("button[value=left]"),
    2: () => press("button[value=right]"), ArrowRight: () => press("button[value=right]"),
    s: () => press("button[value=skip]"), u: () => press("#undo"),
    g: () => toggle("guidelines"), "?": () => toggle("help"),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || event.target.closest("input, textarea, select")) return;
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act) { event.preventDefault(); act(); }
  });
  window.addEventListener("online", again);
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  again();
})();
