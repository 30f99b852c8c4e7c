// Finds a control by what a person calls it. arguments: a kind ("field", "button" or "link")
// and its name. An equal name is better than one that only begins so, because a label may
// go on with a hint.
const [kind, name] = arguments;
const SELECTORS = {
  field: "input:not([type=hidden]), select, textarea",
  button: "button, input[type=submit], [role=button]",
  link: "a[href]",
};

function squeezed(text) {
  return (text || "").replace(/\s+/g, " ").trim();
}

function labelled(element) {
  const ids = (element.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
  const labels = ids.map((id) => document.getElementById(id));
  return labels.concat(Array.from(element.labels || [])).filter(Boolean);
}

function names(element) {
  const found = [element.getAttribute("aria-label")];
  for (const label of labelled(element)) {
    found.push(label.textContent);
    // A label around its control: the text before the control.
    found.push(label.firstChild && label.firstChild.textContent);
  }
  if (kind !== "field") {
    found.push(element.textContent, element.value);
  }
  return found.map(squeezed).filter(Boolean);
}

function isShown(element) {
  const { width, height } = element.getBoundingClientRect();
  return width > 0 && height > 0 && getComputedStyle(element).visibility !== "hidden";
}

const candidates = Array.from(document.querySelectorAll(SELECTORS[kind])).filter(
  (element) => isShown(element) && !element.disabled,
);
// What is in the page comes before what is around every page.
const main = document.querySelector("main");
candidates.sort((a, b) => Number(main && main.contains(b)) - Number(main && main.contains(a)));
return (
  candidates.find((element) => names(element).includes(name)) ||
  candidates.find((element) => names(element).some((known) => known.startsWith(name))) ||
  null
);
