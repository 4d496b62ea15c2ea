// Texts that change by themselves as time passes: ages and waits.

const faces = new WeakMap();

/** An element whose text is `text()`, and whose attributes are `attributes()`, now and every second. */
export function ticking(text, attributes = () => ({})) {
  const element = document.createElement("span");
  faces.set(element, () => {
    const content = text();
    if (element.textContent !== content) element.textContent = content;
    for (const [name, value] of Object.entries(attributes())) element.setAttribute(name, value);
    element.classList.add("ticking");
  });
  faces.get(element)();
  return element;
}

/** Begin. `also` is called every second, too. */
export function startTicking(also) {
  setInterval(() => {
    also();
    for (const element of document.querySelectorAll(".ticking")) faces.get(element)();
  }, 1000);
}
