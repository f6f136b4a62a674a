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
import type { SecureContextOptions, Server as TlsServer } from 'node:tls';
import { userOf, type FakeApiAuth, FakeReviews } from './reviews.ts';
import {
  Faults,
  type FaultRule,
  type Verb,
  forbidden,
  sendJson,
  sendStatus,
  statusObject,
  wantsMetadata,
} from './failures.ts';

import { type KubeObject, readPath, RESOURCES, type Place, type Resource } from './objects.ts';
import { FakeStore, Lists, OpenWatch, selector, type Read } from './store.ts';

export interface FakeApiOptions {
  /** PEM. With a `ca`, client certificates are asked for. Default: plain HTTP. */
  readonly tls?: { readonly key: string; readonly cert: string; readonly ca?: string };
  /** Who is let in. Default: everybody. */
  readonly auth?: FakeApiAuth;
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

export class FakeApi {
  readonly store = new FakeStore();
  /** Answers who a token belongs to, and what that user may do. */
  readonly reviews = new FakeReviews();
  /** Every request that was not refused for want of credentials, oldest first. */
  readonly requests: SeenRequest[] = [];
  /** How a watch learns that its version is too old: by the answer's status, or by an event. */
  gone: 'status' | 'event' = 'status';
  readonly #options: FakeApiOptions;
  readonly #lists = new Lists(this.store);
  readonly #faults = new Faults();
  readonly #denied = new Set<Resource>();
  readonly #watches = new Set<OpenWatch>();
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #port: number;

  constructor(options: FakeApiOptions) {
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
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    server.keepAliveTimeout = 60_000;
    server.listen(this.#port, '127.0.0.1');
    await once(server, 'listening');
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** Goes away: refuses connections and cuts those there are. The objects stay. Idempotent. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = once(server, 'close');
    server.close();
    this.cut();
    await closed;
  }

  /** Takes another certificate for new connections. */
  setTls(context: SecureContextOptions): void {
    (this.#server as unknown as TlsServer).setSecureContext(context);
  }

  upsert(resource: Resource, ...objects: KubeObject[]): void {
    for (const object of objects) this.store.upsert(resource, object);
  }

  /** `key`: `namespace/name`, or the name of a node. */
  delete(resource: Resource, key: string): void {
    this.store.delete(resource, key);
  }

  /** From now on requests are treated so; returns the function that takes it back. */
  fault(rule: FaultRule): () => void {
    return this.#faults.add(rule);
  }

  /** Forbids everything about a resource; what is being watched continues. */
  deny(resource: Resource): () => void {
    this.#denied.add(resource);
    return () => this.#denied.delete(resource);
  }

  /** The watches that are open, of one resource or all. */
  watches(resource?: Resource): OpenWatch[] {
    return [...this.#watches].filter(
      (watch) => resource === undefined || watch.resource === resource,
    );
  }

  /** Cuts every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  bookmark(): void {
    for (const watch of this.#watches) watch.bookmark();
  }

  /** Forgets old versions: watches that begin with one of them are refused. */
  compact(): void {
    this.store.compact();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://fake');
    const user = userOf(request, this.#options.auth);
    if (user === undefined) return sendStatus(response, { code: 401 });
    if (url.pathname === '/version') {
      return sendJson(response, 200, { major: '1', minor: '34', gitVersion: 'v1.34.0-fake' });
    }
    const review = await this.reviews.answer(url.pathname, request);
    if (review !== undefined) return sendJson(response, 201, review);
    const place = readPath(url.pathname);
    if (place === undefined) {
      return sendStatus(response, { code: 404, message: 'the server could not find the resource' });
    }
    const query = url.searchParams;
    const verb = verbOf(request, place, query);
    const { resource } = place;
    const { headers } = request;
    this.requests.push({ verb, resource, query, user, headers, at: performance.now() });
    if (this.#denied.has(resource)) {
      const [group = ''] = RESOURCES[resource].apiVersion.split('/v1');
      return sendStatus(response, forbidden(user, verb, resource, group === 'v1' ? '' : group));
    }
    const fault = this.#faults.take(resource, verb);
    if (fault?.kind === 'wait') await fault.until;
    else if (fault?.kind === 'status') return sendStatus(response, fault.reply);
    else if (fault?.kind === 'silent') return;
    else if (fault?.kind === 'body' || fault?.kind === 'stall') {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      response.write(fault.text);
      if (fault.kind === 'body') response.end();
      return;
    } else if (fault?.kind === 'drip') {
      const timer = setInterval(() => response.write(' '), 1);
      response.on('close', () => clearInterval(timer));
      return;
    }
    const matches = matcher(place, query);
    const read: Read = { resource, matches, metadataOnly: wantsMetadata(request), query };
    if (verb === 'watch') this.#watch(response, read);
    else if (verb === 'list') this.#list(response, read);
    else if (verb === 'get') this.#get(response, place);
    else await this.#create(request, response, place);
  }

  #list(response: ServerResponse, read: Read): void {
    const answer = this.#lists.page(read);
    if ('refusal' in answer) sendStatus(response, answer.refusal);
    else sendJson(response, 200, answer.body);
  }

  #watch(response: ServerResponse, read: Read): void {
    const given = read.query.get('resourceVersion') ?? '';
    const version = given === '' || given === '0' ? undefined : Number(given);
    const tooOld = version !== undefined && this.store.since(read.resource, version) === undefined;
    const message = `too old resource version: ${given} (${this.store.version})`;
    if (tooOld && this.gone === 'status') {
      sendStatus(response, { code: 410, message });
      return;
    }
    if (tooOld) {
      response.writeHead(200, { 'Content-Type': 'application/json' });
      const object = statusObject({ code: 410, message });
      response.end(`${JSON.stringify({ type: 'ERROR', object })}\n`);
      return;
    }
    const watch = new OpenWatch(response, read, version, this.store);
    this.#watches.add(watch);
    response.on('close', () => this.#watches.delete(watch));
  }

  #get(response: ServerResponse, { resource, namespace, name = '' }: Place): void {
    const key = namespace === undefined ? name : `${namespace}/${name}`;
    const object = this.store.get(resource, key);
    const message = `${resource} "${name}" not found`;
    if (object === undefined) sendStatus(response, { code: 404, message });
    else sendJson(response, 200, object);
  }

  /** Takes events and the like; a body that is not JSON (clients may send protobuf) is only answered. */
  async #create(
    request: IncomingMessage,
    response: ServerResponse,
    { resource, namespace }: Place,
  ): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const { apiVersion, kind } = RESOURCES[resource];
    const metadata = { name: `made.${this.store.version}`, namespace: namespace ?? 'default' };
    let object: KubeObject = { kind, apiVersion, metadata };
    if (request.headers['content-type'] === 'application/json') {
      object = JSON.parse(Buffer.concat(parts).toString('utf8')) as KubeObject;
      this.store.upsert(resource, object);
    }
    sendJson(response, 201, object);
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

function verbOf(request: IncomingMessage, { name }: Place, query: URLSearchParams): Verb {
  if (request.method !== 'GET') return 'create';
  if (query.get('watch') === 'true' || query.get('watch') === '1') return 'watch';
  return name === undefined ? 'list' : 'get';
}

function matcher({ namespace }: Place, query: URLSearchParams): (object: KubeObject) => boolean {
  const selects = selector(query.get('labelSelector'), query.get('fieldSelector'));
  return (object) =>
    (namespace === undefined || object.metadata.namespace === namespace) && selects(object);
}
