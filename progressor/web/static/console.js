// What pages do beyond links and forms: keys, and a refresh that disturbs nobody. All else works without it.
"use strict";

const pages = { o: "", p: "processes", b: "broken", n: "namespaces", l: "load", w: "workers", s: "schedules", f: "feed", r: "bulk", a: "audit", y: "system" };
let isGoing = false;

function isTyping(element) {
  return element.matches("input, select, textarea");
}

document.addEventListener("keydown", (event) => {
  const isOff = document.documentElement.dataset.keys === "off";
  if (isOff || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) {
    return;
  }
  const root = document.querySelector("header .name").href;
  if (isGoing && event.key in pages) {
    window.location.assign(root + pages[event.key]);
  } else if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find")?.focus();
  } else if (event.key === "?") {
    window.location.assign(root + "settings#keys");
  }
  isGoing = event.key === "g";
});

function isChanged(field) {
  if (field.matches("select")) {
    // A select without a chosen option shows its first one.
    const chosen = [...field.options].findIndex((option) => option.defaultSelected);
    return field.selectedIndex !== Math.max(chosen, 0);
  }
  if (field.matches("[type=checkbox], [type=radio]")) {
    return field.checked !== field.defaultChecked;
  }
  return field.type !== "hidden" && field.value !== field.defaultValue;
}

// Between two refreshes lies a second, whatever asks for them.
const PACE = 1000;
let refreshedAt = performance.now();
let later = 0;

function refresh() {
  later = 0;
  htmx.trigger("#main", "changed");
}

// A page that somebody marks a text of or fills in stays as it is.
document.addEventListener("htmx:beforeRequest", (event) => {
  const main = document.getElementById("main");
  const isFilled = [...main.querySelectorAll("input, select, textarea")].some(isChanged);
  const isTyped = main.contains(document.activeElement) && isTyping(document.activeElement);
  if (document.hidden || isFilled || isTyped || String(window.getSelection()) !== "") {
    event.preventDefault();
    showLive("Held");
    return;
  }
  const left = refreshedAt + PACE - performance.now();
  if (left > 0) {
    event.preventDefault();
    later ||= window.setTimeout(refresh, left);
  } else {
    refreshedAt = performance.now();
  }
});

// Hints say when a process has changed. A page that nobody sees takes none: a browser has few connections.
let hints = null;

function listen() {
  const { hints: address } = document.getElementById("main").dataset;
  if (document.hidden || address === undefined) {
    hints?.close();
    hints = null;
  } else if (hints === null) {
    hints = new EventSource(address);
    hints.addEventListener("changed", refresh);
  }
}

document.addEventListener("visibilitychange", listen);
listen();

// A page that is held, or cannot be refreshed, says so; one that is gone, or asks for a sign-in, is loaded whole.
function showLive(text) {
  const button = document.querySelector(".live button");
  button.classList.toggle("on", text === "Live");
  button.classList.toggle("lost", text === "Not reached");
  button.textContent = text;
}

document.addEventListener("htmx:sendError", () => showLive("Not reached"));
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if (xhr.status === 404 || new URL(xhr.responseURL).pathname !== window.location.pathname) {
    event.preventDefault();
    window.location.reload();
  } else {
    showLive(xhr.status < 400 ? "Live" : "Not reached");
  }
});

// What scrolls must be reached by keys, for the sake of browsers that do not see to it.
function letKeysScroll() {
  for (const each of document.querySelectorAll("main pre, main .scroll")) {
    if (each.scrollHeight > each.clientHeight || each.scrollWidth > each.clientWidth) {
      each.tabIndex = 0;
    }
  }
}

document.addEventListener("toggle", letKeysScroll, true);
document.addEventListener("htmx:afterSettle", letKeysScroll);
window.addEventListener("resize", letKeysScroll);
letKeysScroll();

// A refresh leaves alone what is open here, what keys scroll, charts, and what an action answered.
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name) => name !== "open" && name !== "tabindex";
Idiomorph.defaults.callbacks.beforeNodeRemoved = (node) => !(node instanceof Element && node.matches(".note[role], .uplot"));
