import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as secureRequest, type RequestOptions } from 'node:https';
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

const TLS_OPTIONS = [
  'ca',
  'cert',
  'key',
  'servername',
  'rejectUnauthorized',
  'passphrase',
] as const;
type TlsOptions = Pick<RequestOptions, (typeof TLS_OPTIONS)[number]>;

/**
 * Requests to one API server. Credentials are fetched for each request, so that tokens and certificates may rotate at
 * any time; KubeConfig's cached ones are dropped when the server refuses them.
 */
export class KubeApi {
  readonly limits: KubeLimits;
  readonly clock: Clock;
  /** Called when the server has answered, with any status. */
  onAnswer: ((identity: Identity) => void) | undefined;
  readonly #options: KubeApiOptions;
  #config: ApiConfig;
  /** The server refused the credentials, or is not trusted: the configuration is read again for the next request. */
  #stale = false;
  /** Set while credentials are being fetched: programs that fetch them run one at a time. */
  #fetching: Promise<Access> | undefined;
  #agent: { readonly key: string; readonly agent: HttpAgent } | undefined;

  private constructor(options: KubeApiOptions, config: ApiConfig) {
    this.limits = options.limits;
    this.clock = options.clock ?? systemClock;
    this.#options = options;
    this.#config = config;
  }

  /** Reads the configuration; throws KPNG_KUBECONFIG if it is missing or invalid. */
  static async open(options: KubeApiOptions): Promise<KubeApi> {
    return new KubeApi(options, await loadConfig(options));
  }

  get config(): ApiConfig {
    return this.#config;
  }

  /** URL of the server, without a slash at its end. */
  get server(): string {
    const { origin, pathname } = this.#config.server;
    return pathname === '/' ? origin : origin + pathname;
  }

  /** The name of the source in its events. */
  get sourceName(): string {
    return `Kubernetes API at ${this.server}`;
  }

  /**
   * Sends a request and resolves with a successful response whose body is still unread. Throws a KubeFailure for any
   * other outcome, or the signal's reason when it aborts.
   */
  async get(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const access = await this.access();
    signal.throwIfAborted();
    let answer: IncomingMessage;
    try {
      answer = await this.#send(request, access, signal);
    } catch (error) {
      signal.throwIfAborted();
      const failure = noAnswer(`${request.what} at ${access.server.origin}`, error);
      if (failure.kind === 'tls') this.#stale = true;
      throw failure;
    }
    this.onAnswer?.(access.identity);
    if (answer.statusCode === 200 || answer.statusCode === 201) return answer;
    const failure = await refusal(answer, request, access, this);
    if (failure.kind === 'unauthorized') this.#stale = true;
    throw failure;
  }

  /** Closes connections that are not in use. */
  close(): void {
    this.#agent?.agent.destroy();
  }

  /** The credentials for the next request. Throws a KubeFailure `credentials`. */
  async access(): Promise<Access> {
    this.#fetching ??= this.#fetch().finally(() => {
      this.#fetching = undefined;
    });
    const { credentialsTimeoutMs } = this.limits;
    const late = Promise.withResolvers<never>();
    const timer = this.clock.setTimer(credentialsTimeoutMs, () =>
      late.reject(new Error(`timed out after ${credentialsTimeoutMs / 1000} s`)),
    );
    try {
      return await Promise.race([this.#fetching, late.promise]);
    } catch (cause) {
      // KubeConfig passes on what a program has said, which may be nothing.
      const why = messageOf(cause) || 'the program that fetches them failed without a message';
      const message = `no credentials for ${this.server}: ${why}`;
      throw new KubeFailure('credentials', message, { cause });
    } finally {
      timer.cancel();
    }
  }

  async #fetch(): Promise<Access> {
    if (this.#stale) this.#config = await loadConfig(this.#options);
    this.#stale = false;
    const { server, credentials, proxy, user } = this.#config;
    const options: RequestOptions = {};
    await credentials.applyToHTTPSOptions(options);
    // As in client-go, no secrets over plain HTTP.
    const isSecure = server.protocol === 'https:';
    const given = TLS_OPTIONS.filter((name) => isSecure && options[name] !== undefined);
    const tls: TlsOptions = Object.fromEntries(given.map((name) => [name, options[name]]));
    const key = JSON.stringify(tls);
    if (proxy !== undefined && this.#agent !== undefined && this.#agent.key !== key) {
      // KubeConfig would reuse proxied connections that present the previous certificate.
      this.#agent = undefined;
      this.#stale = true;
      return this.#fetch();
    }
    // Connections are reused as long as the TLS credentials are the same.
    let cached = this.#agent;
    if (cached?.key !== key) {
      const proxied = proxy === undefined ? undefined : options.agent;
      const agent = proxied instanceof HttpAgent ? proxied : newAgent(isSecure, tls);
      this.#agent = cached = { key, agent };
    }
    const headers = isSecure ? headersOf(options) : {};
    const identity = identify(headers['Authorization'], tls.cert, user);
    return { server, headers, agent: cached.agent, identity };
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
        'User-Agent': this.#options.userAgent,
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

function newAgent(isSecure: boolean, tls: TlsOptions): HttpAgent {
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
