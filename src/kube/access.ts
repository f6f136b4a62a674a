import { Agent as HttpsAgent, type RequestOptions } from 'node:https';
import { getCACertificates } from 'node:tls';
import { messageOf } from '../errors.ts';
import { systemClock, type Clock } from '../util/clock.ts';
import { Agent as HttpAgent } from '../util/node-http.ts';
import { loadConfig, type ApiConfig, type ConfigOptions } from './config.ts';
import { KubeFailure } from './failure.ts';
import { identify, type Identity } from './identity.ts';
import type { KubeLimits } from './limits.ts';

/** What a request needs: credentials and a connection. */
export interface Access {
  readonly server: URL;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly agent: HttpAgent;
  readonly identity: Identity;
}

export interface AccessOptions extends ConfigOptions {
  readonly limits: KubeLimits;
  readonly clock?: Clock | undefined;
}

/** Unused connections are closed after this long. Milliseconds. */
const IDLE_MS = 60_000;

type TlsOptions = Pick<
  RequestOptions,
  'ca' | 'cert' | 'key' | 'servername' | 'rejectUnauthorized' | 'passphrase'
>;

interface Shown {
  readonly headers: Access['headers'];
  readonly tls: TlsOptions;
  /** The same for equal `tls`. */
  readonly key: string;
  /** KubeConfig's own, which knows proxies. */
  readonly agent: HttpAgent | undefined;
}

/**
 * Credentials and connections for one server. Credentials are fetched for each request, so that tokens and
 * certificates may rotate at any time; KubeConfig's cached ones are dropped when the server refuses them.
 */
export class ApiAccess {
  readonly limits: KubeLimits;
  readonly clock: Clock;
  readonly #options: ConfigOptions;
  #config: ApiConfig;
  #stale = false;
  /** Set while credentials are being fetched: programs that fetch them run one at a time. */
  #fetching: Promise<Access> | undefined;
  #agent: { readonly key: string; readonly agent: HttpAgent } | undefined;

  private constructor(options: AccessOptions, config: ApiConfig) {
    this.limits = options.limits;
    this.clock = options.clock ?? systemClock;
    this.#options = options;
    this.#config = config;
  }

  /** Reads the configuration; throws KPNG_KUBECONFIG if it is missing or invalid. */
  static async open(options: AccessOptions): Promise<ApiAccess> {
    return new ApiAccess(options, await loadConfig(options));
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
   * The server refused the credentials, or is not trusted: re-read the configuration and fetch them again next time.
   */
  refused(): void {
    this.#stale = true;
  }

  /** The credentials for the next request. Throws a KubeFailure `credentials`. */
  async get(): Promise<Access> {
    this.#fetching ??= this.#fetch().finally(() => {
      this.#fetching = undefined;
    });
    const fetching = this.#fetching;
    const { credentialsTimeoutMs } = this.limits;
    const late = Promise.withResolvers<never>();
    const timer = this.clock.setTimer(credentialsTimeoutMs, () =>
      late.reject(new Error(`timed out after ${credentialsTimeoutMs / 1000} s`)),
    );
    try {
      return await Promise.race([fetching, late.promise]);
    } catch (cause) {
      const message = `no credentials for ${this.#config.server.href}: ${messageOf(cause)}`;
      throw new KubeFailure('credentials', message, { cause });
    } finally {
      timer.cancel();
    }
  }

  /** Closes connections that are not in use. */
  close(): void {
    this.#agent?.agent.destroy();
  }

  async #fetch(): Promise<Access> {
    if (this.#stale) {
      this.#config = await loadConfig(this.#options);
      this.#stale = false;
    }
    let shown = await this.#show();
    if (
      this.#config.proxy !== undefined &&
      this.#agent !== undefined &&
      this.#agent.key !== shown.key
    ) {
      // KubeConfig would reuse proxied connections that present the previous certificate.
      this.#config = await loadConfig(this.#options);
      shown = await this.#show();
    }
    const { server, user } = this.#config;
    const { headers, tls } = shown;
    const authorization = headers['Authorization'];
    return {
      server,
      headers,
      agent: this.#agentFor(shown),
      identity: identify(
        typeof authorization === 'string' ? authorization : undefined,
        pem(tls.cert),
        user,
      ),
    };
  }

  async #show(): Promise<Shown> {
    const { server, credentials, extraHeaders } = this.#config;
    const options: RequestOptions = {};
    await credentials.applyToHTTPSOptions(options);
    const agent = options.agent instanceof HttpAgent ? options.agent : undefined;
    // As in client-go, no secrets over plain HTTP.
    if (server.protocol === 'http:') return { headers: {}, tls: {}, key: '', agent };
    const { ca, cert, key, servername, rejectUnauthorized, passphrase } = options;
    const tls = { ca, cert, key, servername, rejectUnauthorized, passphrase };
    const headers = { ...headersOf(options), ...extraHeaders };
    return { headers, tls, key: JSON.stringify(tls), agent };
  }

  /** Reused as long as the TLS credentials are the same. */
  #agentFor({ tls, key, agent: throughProxy }: Shown): HttpAgent {
    if (this.#agent?.key === key) return this.#agent.agent;
    const { proxy, server } = this.#config;
    const keepAlive = { keepAlive: true, timeout: IDLE_MS };
    let agent: HttpAgent;
    if (proxy !== undefined && throughProxy !== undefined) agent = throughProxy;
    else if (server.protocol === 'http:') agent = new HttpAgent(keepAlive);
    else agent = new HttpsAgent({ ...keepAlive, ...given(tls), ca: tls.ca ?? systemAuthorities() });
    this.#agent = { key, agent };
    return agent;
  }
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

function pem(cert: TlsOptions['cert']): string | Buffer | undefined {
  const first = Array.isArray(cert) ? cert[0] : cert;
  return typeof first === 'string' || Buffer.isBuffer(first) ? first : undefined;
}

function given(tls: TlsOptions): TlsOptions {
  return Object.fromEntries(Object.entries(tls).filter(([, value]) => value !== undefined));
}

/** Trust the system's CAs, as Go does; Node's default is only its own list. */
function systemAuthorities(): string[] {
  return [...getCACertificates('default'), ...getCACertificates('system')];
}
