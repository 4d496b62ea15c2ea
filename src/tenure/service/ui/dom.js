// Elements. Every text goes in as text: nothing a name says is ever read as markup.

/** An element with attributes and children; a string child is text; null, undefined and false are left out. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...kept(children));
  return element;
}

/** Put these children in the place of those that are there. */
export function refill(element, ...children) {
  element.replaceChildren(...kept(children));
}

/** The element of this id, which index.html has. */
export function byId(id) {
  return document.getElementById(id);
}

/** A button. */
export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

function kept(children) {
  return children.flat().filter((child) => child !== false && child != null);
}
