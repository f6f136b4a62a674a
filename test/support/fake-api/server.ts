/**
 * A Kubernetes API server for tests, over real HTTP or HTTPS on loopback: get, list in pages, watch
 * with versions and bookmarks, and everything that can go wrong with these.
 *
 *     const api = await startFakeApi(t);
 *     api.upsert('services', service('demo/web', '10.96.0.10'));
 *     ... a client lists and watches api.url ...
 *     api.cut();
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { json } from 'node:stream/consumers';
import type { SecureContextOptions, Server as TlsServer, TLSSocket } from 'node:tls';
import { readPath, RESOURCES, type Place, type Resource } from './objects.ts';
import { FakeStore, selector, statusObject, type Read, type StatusReply } from './store.ts';

type Verb = 'list' | 'watch' | 'get';

/**
 * How the server treats requests: a text is the body of the answer, a function makes the answer, and a promise delays the
 * usual one.
 */
type Fault = string | StatusReply | Promise<void> | ((response: ServerResponse) => void);

/** The requests that a fault concerns. Default: all. */
interface Concerned {
  readonly resource?: Resource;
  readonly verb?: Verb;
  readonly times?: number;
}

export interface FakeApiOptions {
  /** PEM. With a `ca`, client certificates are asked for. Default: plain HTTP. */
  readonly tls?: { readonly key: string; readonly cert: string; readonly ca?: string } | undefined;
  /** Who is let in: clients with a certificate, and with these tokens of users. Default: everybody. */
  readonly auth?: { readonly tokens?: ReadonlyMap<string, string> };
  /** Default: a free one. */
  readonly port?: number;
}

/** A request as it came. */
interface SeenRequest {
  readonly verb: Verb;
  readonly resource: Resource;
  readonly query: URLSearchParams;
  readonly user: string;
  readonly headers: IncomingMessage['headers'];
  /** By the clock of `performance.now()`. */
  readonly at: number;
}

export class FakeApi extends FakeStore {
  /** What reviews of tokens and of access answer. */
  readonly reviews = {
    /** Bearer tokens, with the user that each stands for. */
    tokens: new Map<string, { username: string; groups: string[] }>(),
    /** Paths that members of a group may get. */
    allowed: new Map<string, string[]>(),
    /** Kinds of the reviews that were asked for, oldest first. */
    asked: [] as string[],
  };
  /** Every request that was not refused for want of credentials, oldest first. */
  readonly requests: SeenRequest[] = [];
  /** How a watch learns that its version is too old: by the answer's status, or by an event. */
  gone: 'status' | 'event' = 'status';
  readonly #options: FakeApiOptions;
  /** The first one that matches counts. */
  readonly #faults: { readonly fault: Fault; readonly of: Concerned; left: number }[] = [];
  readonly #denied = new Set<Resource>();
  #server: Server | undefined;
  readonly #sockets = new Set<Socket>();
  #port: number;

  constructor(options: FakeApiOptions) {
    super();
    this.#options = options;
    this.#port = options.port ?? 0;
  }

  get url(): string {
    return `${this.#options.tls === undefined ? 'http' : 'https'}://127.0.0.1:${this.#port}`;
  }

  /** Begins to listen, again on the same port if it did before. */
  async start(): Promise<void> {
    const { tls } = this.#options;
    const handle = (request: IncomingMessage, response: ServerResponse): void =>
      void this.#handle(request, response);
    const server =
      tls === undefined
        ? createServer(handle)
        : createSecureServer(
            { ...tls, requestCert: tls.ca !== undefined, rejectUnauthorized: false },
            handle,
          );
    server.keepAliveTimeout = 60_000;
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    server.listen(this.#port, '127.0.0.1');
    await once(server, 'listening');
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** Goes away: refuses connections and cuts those there are. The objects stay. Idempotent. */
  async stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    const closed = once(server, 'close');
    server.close();
    this.cut();
    this.#server = undefined;
    await closed;
  }

  /** Takes another certificate for new connections. */
  setTls(context: SecureContextOptions): void {
    (this.#server as unknown as TlsServer).setSecureContext(context);
  }

  /** From now on requests are treated so; returns the function that takes it back. */
  fault(fault: Fault, of: Concerned = {}): () => void {
    const entry = { fault, of, left: of.times ?? Infinity };
    this.#faults.push(entry);
    return () => (entry.left = 0);
  }

  /** Forbids everything about a resource; what is being watched continues. */
  deny(resource: Resource): () => void {
    this.#denied.add(resource);
    return () => this.#denied.delete(resource);
  }

  /** Cuts every connection. */
  cut(): void {
    // The server does not know those that are in a TLS handshake.
    for (const socket of this.#sockets) socket.destroy();
  }

  bookmark(): void {
    for (const watch of this.open) watch.bookmark();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams: query } = new URL(request.url ?? '/', 'http://fake');
    const user = userOf(request, this.#options.auth);
    if (user === undefined) return sendStatus(response, { code: 401 });
    if (pathname === '/version') {
      return sendJson(response, 200, { major: '1', minor: '34', gitVersion: 'v1.34.0-fake' });
    }
    const review = REVIEWS[pathname];
    if (review !== undefined && request.method === 'POST') {
      return sendJson(response, 201, this.#review(review, (await json(request)) as Review));
    }
    const place = readPath(pathname);
    if (place === undefined) {
      return sendStatus(response, { code: 404, message: 'the server could not find the resource' });
    }
    const { resource, name } = place;
    const isWatch = query.get('watch') === 'true' || query.get('watch') === '1';
    const verb: Verb = isWatch ? 'watch' : name === undefined ? 'list' : 'get';
    const { headers } = request;
    this.requests.push({ verb, resource, query, user, headers, at: performance.now() });
    if (this.#denied.has(resource)) {
      return sendStatus(response, forbidden(user, verb, resource));
    }
    const fault = this.#takeFault(resource, verb);
    if (fault instanceof Promise) await fault;
    else if (typeof fault === 'function') return fault(response);
    else if (typeof fault === 'string') return void response.writeHead(200, JSON_BODY).end(fault);
    else if (fault !== undefined) return sendStatus(response, fault);
    const metadataOnly = /as=PartialObjectMetadata(?:List)?[;,]/.test(headers.accept ?? '');
    const read: Read = { resource, matches: selector(query), metadataOnly, query };
    if (verb === 'watch') this.#watch(response, read);
    else if (verb === 'list') this.#list(response, read);
    else this.#get(response, place);
  }

  #takeFault(resource: Resource, verb: Verb): Fault | undefined {
    const entry = this.#faults.find(
      ({ of, left }) =>
        left > 0 && (of.resource ?? resource) === resource && (of.verb ?? verb) === verb,
    );
    if (entry !== undefined) entry.left -= 1;
    return entry?.fault;
  }

  #review(kind: string, review: Review): object {
    const { tokens, allowed, asked } = this.reviews;
    asked.push(kind);
    if (review.kind !== kind) throw new Error(`${review.kind} instead of ${kind}`);
    const {
      token = '',
      groups = [],
      nonResourceAttributes: { path = '', verb = '' } = {},
    } = review.spec;
    if (kind === 'SubjectAccessReview') {
      const may = groups.some((group) => allowed.get(group)?.includes(path) === true);
      return { ...review, status: { allowed: verb === 'get' && may } };
    }
    const user = tokens.get(token);
    const status =
      user === undefined
        ? { authenticated: false, user: {}, error: 'invalid bearer token' }
        : { authenticated: true, user: { ...user, uid: `uid-of-${user.username}` } };
    return { ...review, status };
  }

  #list(response: ServerResponse, read: Read): void {
    const body = this.page(read);
    const message = 'The provided continue parameter is too old to display a consistent list';
    if (body === undefined) sendStatus(response, { code: 410, message });
    else sendJson(response, 200, body);
  }

  #watch(response: ServerResponse, read: Read): void {
    const given = read.query.get('resourceVersion') ?? '';
    const version = given === '' || given === '0' ? undefined : Number(given);
    if (this.watch(response, read, version)) return;
    const tooOld = {
      code: 410,
      message: `too old resource version: ${given} (${this.version})`,
    };
    if (this.gone === 'status') return sendStatus(response, tooOld);
    response.writeHead(200, JSON_BODY);
    response.end(`${JSON.stringify({ type: 'ERROR', object: statusObject(tooOld) })}\n`);
  }

  #get(response: ServerResponse, { resource, name = '' }: Place): void {
    const object = this.get(resource, name);
    const message = `${resource} "${name}" not found`;
    if (object === undefined) sendStatus(response, { code: 404, message });
    else sendJson(response, 200, object);
  }
}

/** Starts a server that ends with the test. */
export async function startFakeApi(
  t: { teardown(end: () => unknown): unknown },
  options: FakeApiOptions = {},
): Promise<FakeApi> {
  const api = new FakeApi(options);
  await api.start();
  t.teardown(() => api.stop());
  return api;
}

/** The user of a request; undefined: not known, to be refused. Without rules everybody is anonymous. */
function userOf(request: IncomingMessage, auth: FakeApiOptions['auth']): string | undefined {
  if (auth === undefined) return 'system:anonymous';
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
  if (token !== undefined) return auth.tokens?.get(token);
  const socket = request.socket as Partial<TLSSocket>;
  if (socket.authorized !== true || socket.getPeerCertificate === undefined) return undefined;
  const { CN } = socket.getPeerCertificate().subject;
  return Array.isArray(CN) ? CN[0] : CN;
}

/** The kinds of reviews, by path. */
const REVIEWS: Readonly<Record<string, string>> = {
  '/apis/authentication.k8s.io/v1/tokenreviews': 'TokenReview',
  '/apis/authorization.k8s.io/v1/subjectaccessreviews': 'SubjectAccessReview',
};

interface Review {
  readonly kind: string;
  readonly spec: {
    readonly token?: string;
    readonly groups?: string[];
    readonly nonResourceAttributes?: { readonly path?: string; readonly verb?: string };
  };
}

/** The words of the real server for what the user may not do. */
function forbidden(user: string, verb: string, resource: Resource): StatusReply {
  const group = RESOURCES[resource].apiVersion.replace(/\/?v1$/, '');
  const what = `${resource} is forbidden: User "${user}" cannot ${verb} resource "${resource}"`;
  return { code: 403, message: `${what} in API group "${group}" at the cluster scope` };
}

const JSON_BODY = { 'Content-Type': 'application/json' };

function sendStatus(response: ServerResponse, reply: StatusReply): void {
  const { code, retryAfter } = reply;
  if (retryAfter !== undefined) response.setHeader('Retry-After', retryAfter);
  sendJson(response, code, statusObject(reply));
}

function sendJson(response: ServerResponse, code: number, body: unknown): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(code, { ...JSON_BODY, 'Content-Length': Buffer.byteLength(text) }).end(text);
}
