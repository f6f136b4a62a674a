import { KpngError, messageOf, ERROR_CODES, type ErrorCode } from '../errors.ts';
import { request as httpRequest } from '../util/node-http.ts';
import type { ErrorBody } from './handler.ts';

export interface AdminCall {
  readonly socket: string;
  readonly method: 'GET' | 'POST';
  readonly operation: string;
  readonly input?: Readonly<Record<string, unknown>>;
  /** Milliseconds without an answer. Default: 10 s. */
  readonly timeoutMs?: number;
}

/** Maximum size of a response; the dump of very many service ports is the largest. Characters. */
const MAX_RESPONSE = 256 * 1024 * 1024;
const TIMEOUT_MS = 10_000;

/**
 * Calls a running process over its admin socket and resolves with the result. Rejects with KPNG_ADMIN_UNREACHABLE if
 * no process answers, and with the error of the process if it refuses.
 */
export async function callAdmin(call: AdminCall): Promise<unknown> {
  const { status, text } = await exchange(call);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw unreachable(call.socket, 'what answers there is not kpng-userspace');
  }
  if (status === 200) return parsed;
  const { error } = parsed as Partial<ErrorBody>;
  if (error === undefined) throw unreachable(call.socket, `it answered with status ${status}`);
  const { code, message } = error;
  const isKnown = Object.hasOwn(ERROR_CODES, code);
  throw new KpngError(isKnown ? (code as ErrorCode) : 'KPNG_ADMIN_REFUSED', message);
}

function exchange(call: AdminCall): Promise<{ status: number | undefined; text: string }> {
  const { socket, method, operation, input = {}, timeoutMs = TIMEOUT_MS } = call;
  const isRead = method === 'GET';
  const query = isRead ? new URLSearchParams(input as Record<string, string>).toString() : '';
  const path = `/v1/${operation}${query === '' ? '' : `?${query}`}`;
  const headers = isRead ? {} : { 'content-type': 'application/json' };
  const options = { method, path, headers, timeout: timeoutMs };
  // A kept-alive connection could still reach the old process after a new one has taken over.
  const sent = httpRequest({ socketPath: socket, agent: false, ...options });
  return new Promise((resolve, reject) => {
    const fail = (error: NodeJS.ErrnoException): void => {
      const why = FAILURES[error.code ?? ''] ?? messageOf(error);
      reject(unreachable(socket, why, error));
    };
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${timeoutMs / 1000} s`)));
    sent.on('error', fail).on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
        if (text.length > MAX_RESPONSE) response.destroy(new Error('the answer is too long'));
      });
      response.on('error', fail).on('end', () => resolve({ status: response.statusCode, text }));
    });
    sent.end(isRead ? '' : JSON.stringify(input));
  });
}

const FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such socket, so no proxy runs with it',
  ECONNREFUSED: 'the process that it belonged to is gone',
  EACCES: 'only the user of the proxy may open it; try sudo',
  EPERM: 'only the user of the proxy may open it; try sudo',
};

function unreachable(socket: string, why: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_ADMIN_UNREACHABLE', `no answer on ${socket}: ${why}`, { cause });
}
