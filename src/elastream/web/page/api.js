// What the page asks of the run. Actions carry the token that `elastream run` prints; without it they are refused.

const KEY = "elastream-token";

/** Kept for as long as the tab is open, and never sent but in a header. */
export const token = {
  get() {
    return sessionStorage.getItem(KEY) ?? "";
  },
  set(value) {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
    dispatchEvent(new Event("token"));
  },
};

/** The header of every request, where there is a token. */
export const authorization = () => (token.get() ? { Authorization: `Bearer ${token.get()}` } : {});

/** The run refused, or did not answer; `status` is 0 where it did not, `errors` name fields and lines. */
export class Refused extends Error {
  constructor(status, detail, errors = []) {
    super(detail);
    Object.assign(this, { status, errors });
  }
}

/** Why, for people; an error of the page itself is thrown on. */
export function refusalText(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 403) return "Refused: this token may look, and not act.";
  if (error.status !== 401) return `Refused: ${error.errors.map(({ message }) => message).join("; ") || error.message}`;
  return token.get() ? "The token was refused: it is not the one that this run printed, or has ended." : "This needs the token that elastream run printed.";
}

export async function ask(method, path, body) {
  const headers = { Accept: "application/json", ...authorization() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`api/v1/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refused(0, "the run does not answer");
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, found.detail ?? answer.statusText, found.errors);
  return found;
}
