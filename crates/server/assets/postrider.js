// What pages do while they are open: look again when the gateway says so, keep relative times true,
// copy text. Every page works without it; it only saves reloading.
"use strict";

(() => {
  const LEAST_GAP_MS = 500;
  const TIMES_EVERY_MS = 1000;
  const RECONNECT_MS = 5000;
  const COPIED_FOR_MS = 1500;
  const MAX_RELATIVE_SECONDS = 60 * 86400;
  const root = document.documentElement;
  root.classList.add("scripted");

  // Live: one connection to the gateway while the page is looked at. A browser allows few
  // connections to one host, so a page that is hidden gives its own back.
  let source = null;
  let lastLook = 0;
  let waiting = null;

  function lookAgain() {
    const live = document.getElementById("live");
    if (!live || document.hidden || waiting) return;
    const wait = lastLook + LEAST_GAP_MS - Date.now();
    const look = () => {
      waiting = null;
      lastLook = Date.now();
      if (!document.hidden) htmx.trigger("#live", "live");
    };
    if (wait <= 0) look();
    else waiting = setTimeout(look, wait);
  }

  function connect() {
    const live = document.getElementById("live");
    if (!live || !live.dataset.live || document.hidden || source) return;
    source = new EventSource("/live?" + live.dataset.live);
    source.addEventListener("live", lookAgain);
    source.addEventListener("error", () => {
      // A browser comes back by itself unless it was refused: because the session has ended, which
      // the next look finds out, or because there was no place.
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        lookAgain();
        setTimeout(connect, RECONNECT_MS);
      }
    });
  }

  function disconnect() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else {
      connect();
      lookAgain();
    }
  });
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", connect);

  // What somebody has opened or filled in stays so when the page is renewed around it.
  function isTouched(node) {
    if (node instanceof HTMLSelectElement) {
      const options = [...node.options];
      const chosen = Math.max(0, options.findIndex((option) => option.defaultSelected));
      return node.selectedIndex !== chosen;
    }
    if (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement) {
      if (node.type === "checkbox" || node.type === "radio") return node.checked !== node.defaultChecked;
      return node === document.activeElement || node.value !== node.defaultValue;
    }
    return false;
  }
  if (window.Idiomorph) {
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
      !(name === "open" && node instanceof HTMLDetailsElement);
    Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !isTouched(node);
  }

  // Trouble is said once, in words, and taken back when the gateway answers again.
  function say(trouble) {
    const place = document.getElementById("trouble");
    if (!place || place.textContent === trouble) return;
    place.textContent = trouble;
    place.hidden = trouble === "";
  }
  document.addEventListener("htmx:sendError", () =>
    say("The gateway does not answer. What is shown may be out of date."));
  document.addEventListener("htmx:responseError", (event) =>
    say("The gateway could not renew this page (status " + event.detail.xhr.status +
      "). What is shown may be out of date."));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) say("");
  });

  // Times: the same words as the gateway writes.
  function relative(at, now) {
    const seconds = Math.floor(Math.abs(now - at) / 1000);
    if (seconds >= MAX_RELATIVE_SECONDS) return new Date(at).toISOString().slice(0, 10);
    if (seconds === 0) return "now";
    const [number, unit] =
      seconds < 60 ? [seconds, "s"]
      : seconds < 3600 ? [Math.floor(seconds / 60), "min"]
      : seconds < 172800 ? [Math.floor(seconds / 3600), "h"]
      : [Math.floor(seconds / 86400), "d"];
    return now > at ? `${number} ${unit} ago` : `in ${number} ${unit}`;
  }

  // The clock of the gateway decides, not that of the machine that looks at it.
  let ahead = 0;
  function learnTime() {
    const now = Date.parse(document.querySelector("meta[name=postrider-now]")?.content ?? "");
    if (!Number.isNaN(now)) ahead = now - Date.now();
  }
  function renewTimes() {
    if (document.hidden) return;
    const now = Date.now() + ahead;
    for (const time of document.querySelectorAll("time[datetime]:not([data-exact])")) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      const text = relative(at, now);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // Copy buttons: <button type="button" data-copy="#id">.
  async function copy(button) {
    const from = document.querySelector(button.dataset.copy);
    if (!from) return;
    const text = "value" in from ? from.value : from.textContent;
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Without TLS a browser may keep the clipboard to itself; the text is there to be taken.
      getSelection().selectAllChildren(from);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = before; }, COPIED_FOR_MS);
  }

  // Light, dark, or as the machine is set.
  const THEME = "postrider-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  function kept() {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null;
    }
  }
  function setTheme(theme) {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    const button = document.querySelector("[data-theme-toggle]");
    if (!button) return;
    button.hidden = false;
    button.textContent = isDark() ? "Light" : "Dark";
  }
  function toggleTheme() {
    const theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem(THEME, theme);
    } catch {
      // It holds for this page, then.
    }
    setTheme(theme);
  }
  dark.addEventListener("change", () => setTheme(kept()));

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.copy) copy(button);
    else if ("themeToggle" in button.dataset) toggleTheme();
  });
  // Filters: <form data-submit-on-change>. Typing is left to the button, or to htmx.
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (form && "submitOnChange" in form.dataset) form.requestSubmit();
  });

  // On a narrow screen the way to where one is may be out of sight.
  function showWhere() {
    const here = document.querySelector(".sections [aria-current]");
    const list = here?.closest("ul");
    if (list) list.scrollLeft = here.offsetLeft - (list.clientWidth - here.offsetWidth) / 2;
  }

  setTheme(kept());
  showWhere();
  learnTime();
  connect();
  setInterval(renewTimes, TIMES_EVERY_MS);
})();
