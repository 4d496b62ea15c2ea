// The bearer token: asked for when the service wants one, kept in this tab's sessionStorage and nowhere else.

import { byId } from "./dom.js";

const KEY = "tenure-token";
let asking = null; // the promise of the dialog that is open

/** The token, or null where none was given. */
export function current() {
  return sessionStorage.getItem(KEY);
}

/** Ask for another token than `refused`; `why` is what the service said. Returns when there is one. */
export function ask(refused, why) {
  if (current() !== refused) return Promise.resolve(); // it was asked for meanwhile: try what there is now
  sessionStorage.removeItem(KEY);
  offerToForget();
  asking ??= opened(refused === null ? "" : why).finally(() => (asking = null));
  return asking;
}

/** Show the button that forgets the token, and do it. */
export function offerToForget() {
  byId("forget").hidden = current() === null;
  byId("forget").onclick = () => {
    sessionStorage.removeItem(KEY);
    location.reload(); // with all that it has shown
  };
}

function opened(why) {
  const [dialog, form, field, error] = ["token-dialog", "token-form", "token-field", "token-error"].map(byId);
  error.textContent = why;
  field.value = "";
  dialog.oncancel = (event) => event.preventDefault(); // there is nothing to see without one
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      if (current() === null) dialog.showModal(); // a browser closes at the second Escape whatever is said
    };
    form.onsubmit = (event) => {
      event.preventDefault();
      const token = field.value.trim();
      if (!/^[\x21-\x7e]+$/.test(token)) {
        error.textContent = token ? "A token has no spaces or other signs in it: copy it again." : "Enter the token.";
        field.focus();
        return;
      }
      sessionStorage.setItem(KEY, token);
      field.value = "";
      dialog.close();
      offerToForget();
      resolve();
    };
  });
}
