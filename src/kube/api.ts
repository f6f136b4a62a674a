import type { ClientRequest, IncomingMessage } from 'node:http';
import { request as secureRequest } from 'node:https';
import { messageOf } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { request as plainRequest } from '../util/node-http.ts';
import type { Access, ApiAccess } from './access.ts';
import { readBody } from './body.ts';
import { KubeFailure, type Cause } from './failure.ts';
import { expiryOf, type Identity } from './identity.ts';
import { list, object, text, type Json } from './json.ts';
import type { KubeLimits } from './limits.ts';

export interface ApiRequest {
  /** The operation, for messages: `list services`. */
  readonly what: string;
  /** Below the server's URL, such as `/api/v1/services`. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** Sent as JSON, with POST. Absent: GET. */
  readonly body?: object;
}

/** Idle time before TCP probes the peer. Milliseconds. */
const TCP_KEEPALIVE_MS = 30_000;

export class KubeApi {
  readonly access: ApiAccess;
  readonly limits: KubeLimits;
  readonly clock: Clock;
  readonly #userAgent: string;
  readonly #onAnswer: (access: Access) => void;

  /** `onAnswer`: the server has answered, with any status. */
  constructor(
    access: ApiAccess,
    userAgent: string,
    onAnswer: (access: Access) => void = () => undefined,
  ) {
    this.access = access;
    this.limits = access.limits;
    this.clock = access.clock;
    this.#userAgent = userAgent;
    this.#onAnswer = onAnswer;
  }

  /**
   * Sends a request and resolves with a successful response whose body is still unread. Throws a KubeFailure for any
   * other outcome, or the signal's reason when it aborts.
   */
  async get(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const access = await this.access.get();
    signal.throwIfAborted();
    let answer: IncomingMessage;
    try {
      answer = await this.#send(request, access, signal);
    } catch (error) {
      signal.throwIfAborted();
      const failure = failureOf(`${request.what} at ${access.server.origin}`, error);
      if (failure.kind === 'tls') this.access.refused();
      throw failure;
    }
    this.#onAnswer(access);
    if (answer.statusCode === 200 || answer.statusCode === 201) return answer;
    const failure = await refusal(answer, request, access, this);
    if (failure.kind === 'unauthorized') this.access.refused();
    throw failure;
  }

  async #send(request: ApiRequest, access: Access, signal: AbortSignal): Promise<IncomingMessage> {
    for (;;) {
      const sent = this.#open(request, access, signal);
      try {
        return await answerOf(sent, this);
      } catch (error) {
        // The server closed the idle connection just as it was reused.
        if (!sent.reusedSocket || codeOf(error) !== 'ECONNRESET' || signal.aborted) throw error;
      }
    }
  }

  #open(request: ApiRequest, access: Access, signal: AbortSignal): ClientRequest {
    const { path, query, accept, body } = request;
    const { server, headers, agent } = access;
    const url = new URL(server);
    url.pathname = `${server.pathname.replace(/\/$/, '')}${path}`;
    url.search = new URLSearchParams(query).toString();
    const send = url.protocol === 'https:' ? secureRequest : plainRequest;
    const sent = send(url, {
      agent,
      signal,
      ...(body !== undefined && { method: 'POST' }),
      headers: {
        ...headers,
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        Accept: accept,
        'User-Agent': this.#userAgent,
      },
    });
    sent.on('socket', (socket) => socket.setKeepAlive(true, TCP_KEEPALIVE_MS));
    sent.end(body && JSON.stringify(body));
    return sent;
  }
}

async function answerOf(sent: ClientRequest, { limits, clock }: KubeApi): Promise<IncomingMessage> {
  const { responseTimeoutMs, maxInterimResponses } = limits;
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const timer = clock.setTimer(responseTimeoutMs, () =>
    sent.destroy(new Error(`no answer within ${responseTimeoutMs / 1000} s`)),
  );
  let interim = 0;
  const onInterim = (): void => {
    interim += 1;
    if (interim > maxInterimResponses) {
      sent.destroy(new Error(`more than ${maxInterimResponses} interim answers (1xx)`));
    }
  };
  sent.on('continue', onInterim);
  sent.on('information', onInterim);
  sent.once('response', resolve);
  // It stays: a later error is reported to the reader of the body.
  sent.on('error', reject);
  try {
    return await promise;
  } finally {
    timer.cancel();
  }
}

/** Node's codes for an untrusted certificate. */
const CERTIFICATE_CODES =
  /^(?:CERT_|ERR_TLS_CERT|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|INVALID_CA|PATH_LENGTH|HOSTNAME_MISMATCH|ERR_SSL_|ERR_TLS_)/;

/** Why there was no response. */
function failureOf(what: string, error: unknown): KubeFailure {
  const code = codeOf(error) ?? '';
  const kind = CERTIFICATE_CODES.test(code) ? 'tls' : 'unreachable';
  const isClosed = code === 'ECONNRESET' && what.includes(' at http://');
  const hint = isClosed ? CLOSED : HINTS[code];
  if (hint !== undefined) return new KubeFailure(kind, `${what}: ${hint}`);
  return new KubeFailure(kind, `${what}: ${wordsOf(error)}`, { cause: error });
}

const CLOSED =
  'the server closed the connection without an answer; use https:// in its URL if it requires TLS';

const UNTRUSTED =
  'API server certificate is not signed by a trusted CA; set certificate-authority in the kubeconfig';

const HINTS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'API server certificate has expired; renew it',
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  EPROTO:
    'the server does not speak TLS, or not a version in common; use http:// in its URL if it serves plain HTTP',
};

/** After trying several addresses, the messages are in a list. */
function wordsOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(messageOf).join(', ');
  }
  return messageOf(error);
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined;
}

/** Maximum bytes read of the body of a refusal. */
const MAX_BODY = 64 * 1024;

/** Why the server refused a request, and the remedy. */
async function refusal(
  answer: IncomingMessage,
  { what, path }: { readonly what: string; readonly path: string },
  { server, identity }: Access,
  { limits, clock }: KubeApi,
): Promise<KubeFailure> {
  const code = answer.statusCode ?? 0;
  const status = await statusOf(answer, limits.responseTimeoutMs, clock);
  const message = text(status['message']) || (answer.statusMessage ?? '');
  const kind = causeOf(code, status);
  const where = `${what} at ${server.origin}`;
  const seconds = Number(answer.headers['retry-after']);
  const retryAfterMs =
    Number.isFinite(seconds) && seconds > 0
      ? Math.min(seconds * 1000, limits.maxRetryAfterMs)
      : undefined;
  // What servers of Go answer to plain HTTP.
  const isPlain = code === 400 && server.protocol === 'http:';
  const remedy = isPlain
    ? '; use https:// in its URL if it requires TLS'
    : advice(kind, path, identity);
  return new KubeFailure(kind, `${where}: ${code} ${message}${remedy}`, { retryAfterMs });
}

/** The cause of a status, of a response or an event. */
export function causeOf(code: number, status: Json): Cause {
  const reason = text(status['reason']);
  if (code === 410 || reason === 'Expired' || reason === 'Gone') return 'gone';
  if (code === 401) return 'unauthorized';
  if (code === 403) return 'forbidden';
  if (code === 429) return 'throttled';
  // The server has been restored from a backup: it does not know a version that it sent before.
  const causes = list(object(status['details'])['causes']).map(object);
  const ahead = causes.some(({ reason: cause }) => cause === 'ResourceVersionTooLarge');
  if (ahead || /too (?:old|large) resource version/i.test(text(status['message']))) return 'gone';
  return 'server';
}

function advice(kind: Cause, path: string, identity: Identity): string {
  const user = JSON.stringify(identity.user);
  if (kind === 'unauthorized') {
    const expired = expiryOf(identity, Date.now());
    return `; ${expired ?? `the server does not accept the ${identity.by} of ${user}`}`;
  }
  if (kind !== 'forbidden') return '';
  const resource = path.slice(path.lastIndexOf('/') + 1);
  const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(identity.user) ?? [];
  const subject =
    name === undefined ? `--user=${identity.user}` : `--serviceaccount=${namespace}:${name}`;
  return (
    `; allow ${user} to list and watch ${resource}, such as with: kubectl create ` +
    `clusterrolebinding kpng --clusterrole=system:node-proxier ${subject}`
  );
}

/** The Status object of the body; empty when there is none. */
async function statusOf(answer: IncomingMessage, totalMs: number, clock: Clock): Promise<Json> {
  const limits = { maxBytes: MAX_BODY, silenceMs: totalMs, totalMs };
  try {
    return object(JSON.parse((await readBody('', answer, limits, clock)) ?? ''));
  } catch {
    // The status code is enough.
    return {};
  }
}
