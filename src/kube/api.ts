import type { ClientRequest, IncomingMessage } from 'node:http';
import {
  Agent as HttpsAgent,
  request as secureRequest,
  type AgentOptions,
  type RequestOptions,
} from 'node:https';
import { getCACertificates } from 'node:tls';
import { messageOf } from '../errors.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { Agent as HttpAgent, request as plainRequest } from '../util/node-http.ts';
import { loadConfig, type ApiConfig, type ConfigOptions } from './config.ts';
import { KubeFailure } from './failure.ts';
import type { KubeLimits } from './limits.ts';
import { codeOf, identify, noAnswer, refusal, type Identity } from './refusal.ts';

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

/** Unused connections are closed after this long. Milliseconds. */
const IDLE_MS = 60_000;

/** What a request needs: credentials and a connection. */
interface Access {
  readonly server: URL;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly agent: HttpAgent;
  readonly identity: Identity;
}

export interface KubeApiOptions extends ConfigOptions {
  readonly limits: KubeLimits;
  readonly clock?: Clock | undefined;
  readonly userAgent: string;
}

export type KubeApi = Awaited<ReturnType<typeof openKubeApi>>;

/**
 * Requests to one API server. Credentials are fetched for each request, so that tokens and certificates may rotate at
 * any time; KubeConfig's cached ones are dropped when the server refuses them. Reads the configuration; throws
 * KPNG_KUBECONFIG if it is missing or invalid.
 */
export async function openKubeApi(options: KubeApiOptions) {
  const { limits, clock = systemClock, userAgent } = options;
  let config = await loadConfig(options);
  /** The server refused the credentials, or is not trusted: the configuration is read again for the next request. */
  let isStale = false;
  /** Set while credentials are being fetched: programs that fetch them run one at a time. */
  let fetching: Promise<Access> | undefined;
  let cached: { readonly id: string; readonly agent: HttpAgent } | undefined;

  const fetchAccess = async (): Promise<Access> => {
    if (isStale) config = await loadConfig(options);
    isStale = false;
    const { server, credentials, proxy, user } = config;
    const given: RequestOptions = {};
    await credentials.applyToHTTPSOptions(given);
    // As in client-go, no secrets over plain HTTP.
    const isSecure = server.protocol === 'https:';
    const { ca, cert, key, servername, rejectUnauthorized, passphrase } = given;
    const used = { ca, cert, key, servername, rejectUnauthorized, passphrase };
    const tls: AgentOptions = isSecure ? used : {};
    const id = JSON.stringify(tls);
    if (proxy !== undefined && cached !== undefined && cached.id !== id) {
      // KubeConfig would reuse proxied connections that present the previous certificate.
      cached = undefined;
      isStale = true;
      return fetchAccess();
    }
    // Connections are reused as long as the TLS credentials are the same.
    if (cached?.id !== id) {
      const proxied = proxy === undefined ? undefined : given.agent;
      cached = { id, agent: proxied instanceof HttpAgent ? proxied : newAgent(isSecure, tls) };
    }
    const headers = isSecure ? headersOf(given) : {};
    const identity = identify(headers['Authorization'], tls.cert, user);
    return { server, headers, agent: cached.agent, identity };
  };

  const open = (request: ApiRequest, access: Access, signal: AbortSignal): ClientRequest => {
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
        'User-Agent': userAgent,
      },
    });
    sent.on('socket', (socket) => socket.setKeepAlive(true, TCP_KEEPALIVE_MS));
    sent.end(body && JSON.stringify(body));
    return sent;
  };
  const send = async (
    request: ApiRequest,
    access: Access,
    signal: AbortSignal,
  ): Promise<IncomingMessage> => {
    for (;;) {
      const sent = open(request, access, signal);
      try {
        return await answerOf(sent, limits, clock);
      } catch (error) {
        // The server closed the idle connection just as it was reused.
        if (!sent.reusedSocket || codeOf(error) !== 'ECONNRESET' || signal.aborted) throw error;
      }
    }
  };

  return {
    limits,
    clock,
    /** Called when the server has answered, with any status. */
    onAnswer: undefined as ((identity: Identity) => void) | undefined,
    get config(): ApiConfig {
      return config;
    },
    /** URL of the server, without a slash at its end. */
    get server(): string {
      const { origin, pathname } = config.server;
      return pathname === '/' ? origin : origin + pathname;
    },
    /** The name of the source in its events. */
    get sourceName(): string {
      return `Kubernetes API at ${this.server}`;
    },
    /** The credentials for the next request. Throws a KubeFailure `credentials`. */
    async access(): Promise<Access> {
      fetching ??= fetchAccess().finally(() => (fetching = undefined));
      const { credentialsTimeoutMs } = limits;
      const late = Promise.withResolvers<never>();
      const timer = clock.setTimer(credentialsTimeoutMs, () =>
        late.reject(new Error(`timed out after ${credentialsTimeoutMs / 1000} s`)),
      );
      try {
        return await Promise.race([fetching, late.promise]);
      } catch (cause) {
        // KubeConfig passes on what a program has said, which may be nothing.
        const why = messageOf(cause) || 'the program that fetches them failed without a message';
        const message = `no credentials for ${this.server}: ${why}`;
        throw new KubeFailure('credentials', message, { cause });
      } finally {
        timer.cancel();
      }
    },
    /**
     * Sends a request and resolves with a successful response whose body is still unread. Throws a KubeFailure for any
     * other outcome, or the signal's reason when it aborts.
     */
    async get(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
      const access = await this.access();
      signal.throwIfAborted();
      let answer: IncomingMessage;
      try {
        answer = await send(request, access, signal);
      } catch (error) {
        signal.throwIfAborted();
        const failure = noAnswer(`${request.what} at ${access.server.origin}`, error);
        if (failure.kind === 'tls') isStale = true;
        throw failure;
      }
      this.onAnswer?.(access.identity);
      if (answer.statusCode === 200 || answer.statusCode === 201) return answer;
      const failure = await refusal(answer, request, access, { limits, clock });
      if (failure.kind === 'unauthorized') isStale = true;
      throw failure;
    },
    /** Closes connections that are not in use. */
    close: (): void => cached?.agent.destroy(),
  };
}

async function answerOf(
  sent: ClientRequest,
  { responseTimeoutMs, maxInterimResponses }: KubeLimits,
  clock: Clock,
): Promise<IncomingMessage> {
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

function newAgent(isSecure: boolean, tls: AgentOptions): HttpAgent {
  const keepAlive = { keepAlive: true, timeout: IDLE_MS };
  if (!isSecure) return new HttpAgent(keepAlive);
  // Trust the system's CAs, as Go does; Node's default is only its own list.
  const ca = tls.ca ?? [...getCACertificates('default'), ...getCACertificates('system')];
  return new HttpsAgent({ ...keepAlive, ...tls, ca });
}

/** The headers from KubeConfig, trimmed: a token file may end with a newline, which a header must not. */
function headersOf({ headers, auth }: RequestOptions): Record<string, string | string[]> {
  const plain: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (Array.isArray(value)) plain[name] = value.map((each: unknown) => String(each).trim());
    else if (value !== undefined) plain[name] = String(value).trim();
  }
  if (typeof auth === 'string') {
    plain['Authorization'] ??= `Basic ${Buffer.from(auth).toString('base64')}`;
  }
  return plain;
}
