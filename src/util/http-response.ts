import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** The parts of a request that a page may depend on. */
export interface HttpRequest {
  /** GET or HEAD; on a server that reads bodies, any other too. */
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** After the question mark; empty: none. */
  readonly query: string;
  readonly headers: IncomingHttpHeaders;
  /** The request body; empty on a server that reads none. */
  readonly body: string;
  /** Aborts when the response is no longer needed: the client has disconnected, or a limit is reached. */
  readonly signal: AbortSignal;
}

export interface HttpResponse {
  readonly status: number;
  readonly type: string;
  readonly body: ResponseBody;
  /** Further headers, by name in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * A text; or pieces produced as fast as the client reads; or a function that makes a whole page, which several
 * clients may share. For HEAD, only a text is produced.
 */
export type ResponseBody =
  string | AsyncIterable<string> | ((signal: AbortSignal) => Promise<readonly Uint8Array[]>);

export function plain(status: number, body: string): HttpResponse {
  return { status, type: 'text/plain; charset=utf-8', body };
}

export function json(status: number, value: unknown): HttpResponse {
  return { status, type: JSON_TYPE, body: `${JSON.stringify(value)}\n` };
}

export const JSON_TYPE = 'application/json';

/**
 * Sends a response. `hold` gets the part of the body that is in memory. Settles when no more of the body is produced;
 * the client may still have to read it.
 */
export async function sendResponse(
  response: ServerResponse,
  answer: HttpResponse,
  signal: AbortSignal,
  hold: (bytes: number, body?: object) => void,
): Promise<void> {
  const { status, type, headers } = answer;
  const withBody = response.req.method !== 'HEAD';
  const body =
    typeof answer.body === 'function' && withBody ? await answer.body(signal) : answer.body;
  if (signal.aborted) return;
  const bytes = lengthOf(body);
  response.writeHead(status, {
    'content-type': type,
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    ...headers,
    ...(bytes !== undefined && { 'content-length': bytes }),
  });
  if (!withBody || typeof body === 'function') {
    response.end();
  } else if (typeof body === 'string') {
    hold(bytes ?? 0);
    response.end(body);
  } else if (isPieces(body)) {
    await pipeline(Readable.from(counted(body, hold), { objectMode: false }), response);
  } else {
    hold(bytes ?? 0, body);
    await pipeline(Readable.from(body, { objectMode: false }), response);
  }
}

function lengthOf(body: ResponseBody | readonly Uint8Array[]): number | undefined {
  if (typeof body === 'string') return Buffer.byteLength(body);
  if (typeof body === 'function' || isPieces(body)) return undefined;
  return body.reduce((sum, { length }) => sum + length, 0);
}

function isPieces(body: ResponseBody | readonly Uint8Array[]): body is AsyncIterable<string> {
  return typeof body === 'object' && Symbol.asyncIterator in body;
}

async function* counted(
  pieces: AsyncIterable<string>,
  hold: (bytes: number) => void,
): AsyncGenerator<string, void, void> {
  for await (const piece of pieces) {
    hold(Buffer.byteLength(piece));
    yield piece;
  }
}
