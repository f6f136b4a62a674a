/**
 * Runs in the namespace: as much of the Kubernetes API as kube-proxy 1.20 needs, over HTTP with
 * JSON. It lists and watches services, endpoints and nodes, and takes events without keeping them.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { answerRequests } from '../../support/dialogue.ts';
import { now } from '../clock.ts';
import { ENDPOINT_ADDRESSES } from '../network.ts';
import { serviceName } from '../services.ts';
import type { ChangeKind } from '../subject.ts';
import { Collection } from './collection.ts';
import { apiEndpoints, apiNode, apiService } from './objects.ts';

export type ApiRequest =
  /** Makes so many services, and tells the server's port. */
  | { readonly do: 'open'; readonly services: number }
  /** When the first list with services and with endpoints had both gone out. */
  | { readonly do: 'listedAt' }
  | { readonly do: 'change'; readonly kind: ChangeKind; readonly n: number };

let version = 1;
const next = (): number => (version += 1);
const collections: Readonly<Record<string, Collection>> = {
  services: new Collection('Service', next),
  endpoints: new Collection('Endpoints', next),
  nodes: new Collection('Node', next),
};
const { services, endpoints, nodes } = collections as Record<
  'services' | 'endpoints' | 'nodes',
  Collection
>;
const listed = new Map<string, number>();

const server = createServer((request, response) => {
  response.setHeader('content-type', 'application/json');
  if (request.method === 'GET') return read(request, response);
  // Events, which have to come back as they were sent.
  response.statusCode = 201;
  return request.pipe(response);
});

function read(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? '/', 'http://localhost');
  const [, kind = '', name] = /^\/api\/v1\/(\w+)(?:\/([\w.-]+))?$/.exec(url.pathname) ?? [];
  const collection = collections[kind];
  if (collection === undefined) return notFound(response);
  if (url.searchParams.has('watch')) return collection.watch(response);
  if (name === undefined) {
    collection.list(response, version);
    if (!listed.has(kind)) response.once('finish', () => listed.set(kind, now()));
    return undefined;
  }
  const object = collection.get(name);
  return object === undefined ? notFound(response) : void response.end(JSON.stringify(object));
}

function notFound(response: ServerResponse): void {
  response.statusCode = 404;
  response.end(JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code: 404 }));
}

answerRequests(async (request: ApiRequest) => {
  switch (request.do) {
    case 'open':
      nodes.put(apiNode());
      for (let n = 0; n < request.services; n += 1) {
        services.put(apiService(n));
        endpoints.put(apiEndpoints(n));
      }
      server.listen({ host: '127.0.0.1', port: 0 });
      await once(server, 'listening');
      return (server.address() as AddressInfo).port;
    case 'listedAt':
      return Math.max(listed.get('services') ?? 0, listed.get('endpoints') ?? 0);
    case 'change':
      return change(request.kind, request.n);
    default:
      return request satisfies never;
  }
});

/** Carries a change out and tells when. */
function change(kind: ChangeKind, n: number): number {
  const at = now();
  if (kind === 'removed') {
    services.delete(serviceName(n));
    endpoints.delete(serviceName(n));
    return at;
  }
  endpoints.put(apiEndpoints(n, kind === 'added' ? ENDPOINT_ADDRESSES.slice(0, 1) : undefined));
  if (kind === 'added') services.put(apiService(n));
  return at;
}
