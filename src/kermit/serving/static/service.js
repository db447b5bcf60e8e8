// Requests to the service, with streamed events.

/** An error of the service or the connection. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const TOKEN = "kermit-token";

/** Keep the service's token while the tab is open. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** The served models. */
export async function models(signal) {
  const response = await send("v1/models", { signal });
  return (await response.json()).models;
}

/** Alternatives for a slot of a canvas. */
export async function alternatives(body, signal) {
  const response = await post("v1/alternatives", body, signal);
  return response.json();
}

/**
 * Send a streaming request, and wait for the result.
 *
 * `onEvent(name, data)` is called for the start and every round.
 */
export async function ask(path, body, signal, onEvent) {
  const response = await post(path, { ...body, stream: true, trace: true }, signal);
  for await (const { name, data } of events(response.body)) {
    if (name === "error") throw new Problem(503, data.detail);
    if (name === "result") return data.results[0];
    onEvent(name, data);
  }
  throw new Problem(0, "The connection was lost before the answer arrived; try again.");
}

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return send(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function send(path, { headers = {}, ...settings }) {
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { headers, ...settings });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The service cannot be reached; is it still running?");
  }
  if (response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  throw new Problem(response.status, detail ?? `${response.status} ${response.statusText}`);
}

/** The server-sent events of a response, as `{name, data}`. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = block.match(/^event: (.*)\ndata: (.*)$/);
      yield { name, data: JSON.parse(data) };
    }
  }
}
