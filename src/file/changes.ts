import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { GlobalState } from '../store/global-state.ts';
import type { GlobalTransaction } from '../store/global-transaction.ts';

/** A step from one state of a file to the next: plain data, small enough to be copied between threads. */
export type StateChange =
  /** What was there before is gone, unless one of the next steps sets it. */
  | { readonly kind: 'reset' }
  /** A service that is new or has changed. Its endpoints follow, all of them. */
  | { readonly kind: 'service'; readonly service: Service }
  | { readonly kind: 'endpoints'; readonly endpoints: readonly EndpointInfo[] }
  | { readonly kind: 'removeService'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'node'; readonly node: Node }
  | { readonly kind: 'removeNode'; readonly name: string };

/** So many endpoints at most are one step. */
const MAX_ENDPOINTS = 500;

/** What leads from one state to another. Services that are the same objects have not changed. */
export function* stateChanges(
  before: GlobalState | undefined,
  after: GlobalState,
): Generator<StateChange, void, undefined> {
  if (before === undefined) yield { kind: 'reset' };
  for (const [key, { service }] of before?.services ?? []) {
    const { namespace, name } = service;
    if (!after.services.has(key)) yield { kind: 'removeService', namespace, name };
  }
  for (const [key, global] of after.services) {
    if (before?.services.get(key) === global) continue;
    const { service, endpoints } = global;
    yield { kind: 'service', service };
    for (let at = 0; at < endpoints.length; at += MAX_ENDPOINTS) {
      yield { kind: 'endpoints', endpoints: endpoints.slice(at, at + MAX_ENDPOINTS) };
    }
  }
  for (const name of before?.nodes.keys() ?? []) {
    if (!after.nodes.has(name)) yield { kind: 'removeNode', name };
  }
  for (const [name, node] of after.nodes) {
    if (!isDeepStrictEqual(before?.nodes.get(name), node)) yield { kind: 'node', node };
  }
}

/** Writes the changes of a file to a store. */
export class StateWriter {
  readonly #services = new Map<string, { readonly namespace: string; readonly name: string }>();
  readonly #nodes = new Set<string>();

  /**
   * The steps of a transaction, of about a service each. The endpoints of a service are one source, with
   * the name of the service, as kpng has it.
   */
  *write(
    transaction: GlobalTransaction,
    changes: readonly StateChange[],
  ): Generator<void, void, undefined> {
    const staleServices = new Map<string, { namespace: string; name: string }>();
    const staleNodes = new Set<string>();
    for (const [index, change] of changes.entries()) {
      switch (change.kind) {
        case 'reset':
          for (const [key, service] of this.#services) staleServices.set(key, service);
          for (const name of this.#nodes) staleNodes.add(name);
          break;
        case 'service': {
          const { namespace, name } = change.service;
          const key = servicePath(namespace, name);
          this.#services.set(key, { namespace, name });
          staleServices.delete(key);
          const endpoints = endpointsAt(changes, index + 1);
          transaction.setService(change.service);
          transaction.setSource({ namespace, name, serviceName: name, endpoints });
          break;
        }
        case 'endpoints':
          continue;
        case 'removeService':
          this.#removeService(transaction, change);
          break;
        case 'node':
          this.#nodes.add(change.node.name);
          staleNodes.delete(change.node.name);
          transaction.setNode(change.node);
          break;
        case 'removeNode':
          this.#removeNode(transaction, change.name);
          break;
      }
      yield;
    }
    for (const service of staleServices.values()) this.#removeService(transaction, service);
    for (const name of staleNodes) this.#removeNode(transaction, name);
    transaction.setComplete();
  }

  #removeService(
    transaction: GlobalTransaction,
    { namespace, name }: { readonly namespace: string; readonly name: string },
  ): void {
    this.#services.delete(servicePath(namespace, name));
    transaction.deleteSource(namespace, name);
    transaction.deleteService(namespace, name);
  }

  #removeNode(transaction: GlobalTransaction, name: string): void {
    this.#nodes.delete(name);
    transaction.deleteNode(name);
  }
}

/** The endpoints of the service before this index. */
function endpointsAt(changes: readonly StateChange[], index: number): readonly EndpointInfo[] {
  const parts: (readonly EndpointInfo[])[] = [];
  for (let at = index; at < changes.length; at += 1) {
    const change = changes[at];
    if (change?.kind !== 'endpoints') break;
    parts.push(change.endpoints);
  }
  return parts.flat();
}
