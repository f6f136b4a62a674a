import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** The parts of a request that a page may depend on. */
export interface HttpRequest {
  /** GET or HEAD; on a server that reads bodies, any other too. */
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  /** What follows the question mark; empty: nothing. */
  readonly query: string;
  readonly headers: IncomingHttpHeaders;
  /** The request body; empty on a server that reads none. */
  readonly body: string;
  /** Aborts when no one will read the answer: the client has left, or a limit is reached. */
  readonly signal: AbortSignal;
}

/** The response to a client. */
export interface HttpResponse {
  readonly status: number;
  readonly type: string;
  readonly body: ResponseBody;
  /** Further headers, by name in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * A text; or pieces of one that are made as fast as the client reads; or what makes a whole page, which several
 * clients may share. Only a text is made for HEAD.
 */
export type ResponseBody =
  string | AsyncIterable<string> | ((signal: AbortSignal) => Promise<readonly Uint8Array[]>);

/** A short text as an answer. */
export function plain(status: number, body: string): HttpResponse {
  return { status, type: 'text/plain; charset=utf-8', body };
}

/**
 * Sends an answer. `hold` gets what of the body is in memory now. Resolves or rejects when no more of it is made; the
 * client may still have to read.
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
