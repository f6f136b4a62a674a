import { isDeepStrictEqual } from 'node:util';
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Service } from '../api/generated/localv1/api.ts';
import { servicePath } from '../api/paths.ts';
import type { GlobalState } from '../store/global-state.ts';
import type { GlobalTransaction, Range } from '../store/global-transaction.ts';

/** A step from one state of a file to the next: plain data, small enough to be copied between threads. */
export type StateChange =
  /** The previous state is dropped, except for what later steps set. */
  | { readonly kind: 'reset' }
  /** A new or changed service. All its endpoints follow, including unchanged ones. */
  | { readonly kind: 'service'; readonly service: Service }
  | ({ readonly kind: 'kept' } & Range)
  | { readonly kind: 'endpoints'; readonly endpoints: readonly EndpointInfo[] }
  | { readonly kind: 'removeService'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'node'; readonly node: Node }
  | { readonly kind: 'removeNode'; readonly name: string };

/** Maximum number of endpoints in a step. */
const MAX_ENDPOINTS = 500;

/** The difference between two states. Services with the same object are unchanged. */
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
    const old = before?.services.get(key);
    if (old === global) continue;
    yield { kind: 'service', service: global.service };
    for (const part of endpointParts(old?.endpoints ?? [], global.endpoints)) {
      if ('from' in part) yield { kind: 'kept', ...part };
      else yield* inSteps(part);
    }
  }
  for (const name of before?.nodes.keys() ?? []) {
    if (!after.nodes.has(name)) yield { kind: 'removeNode', name };
  }
  for (const [name, node] of after.nodes) {
    if (!isDeepStrictEqual(before?.nodes.get(name), node)) yield { kind: 'node', node };
  }
}

function* inSteps(endpoints: readonly EndpointInfo[]): Generator<StateChange, void, undefined> {
  for (let at = 0; at < endpoints.length; at += MAX_ENDPOINTS) {
    yield { kind: 'endpoints', endpoints: endpoints.slice(at, at + MAX_ENDPOINTS) };
  }
}

/** A list as ranges of an older one and new items, in order. Its cost grows with both. */
function* endpointParts(
  before: readonly EndpointInfo[],
  after: readonly EndpointInfo[],
): Generator<Range | EndpointInfo[], void, undefined> {
  let oldPositions: ReadonlyMap<string, number> | undefined;
  let positions: ReadonlyMap<string, number> | undefined;
  let from = 0;
  let at = 0;
  let added: EndpointInfo[] = [];
  for (const [index, endpoint] of after.entries()) {
    let isKept = isDeepStrictEqual(before[at], endpoint);
    if (!isKept) {
      if (from < at) yield { from, to: at };
      from = at;
      oldPositions ??= positionsIn(before);
      positions ??= positionsIn(after);
      const old = oldPositions.get(nameOf(endpoint)) ?? -1;
      const next = positions.get(nameOf(before[at])) ?? Infinity;
      // It was removed or has moved: choose what keeps more of both lists.
      if (old >= at && old - at <= next - index) {
        from = at = old;
        isKept = isDeepStrictEqual(before[at], endpoint);
        if (!isKept) from = at += 1;
      }
    }
    if (!isKept) added.push(endpoint);
    else {
      if (added.length > 0) yield added;
      added = [];
      at += 1;
    }
  }
  if (from < at) yield { from, to: at };
  if (added.length > 0) yield added;
}

function positionsIn(endpoints: readonly EndpointInfo[]): ReadonlyMap<string, number> {
  return new Map(endpoints.map((endpoint, index) => [nameOf(endpoint), index]));
}

/** The identity of an endpoint within a list. */
function nameOf(info: EndpointInfo | undefined): string {
  const { ips } = info?.endpoint ?? {};
  return `${info?.podName} ${ips?.v4[0] ?? ips?.v6[0]}`;
}

/** Writes the changes of a file to a store. */
export class StateWriter {
  readonly #services = new Map<string, { readonly namespace: string; readonly name: string }>();
  readonly #nodes = new Set<string>();

  /**
   * The steps of a transaction, about one service each. The endpoints of a service are one source, named after the
   * service as in kpng.
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
          const source = { namespace, name, serviceName: name };
          const parts = endpointsAt(changes, index + 1);
          transaction.setService(change.service);
          if (parts.some((part) => 'from' in part)) transaction.patchSource(source, parts);
          else transaction.setSource({ ...source, endpoints: (parts as EndpointInfo[][]).flat() });
          break;
        }
        case 'kept':
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

/** The endpoints of the service that precedes this index. */
function endpointsAt(
  changes: readonly StateChange[],
  index: number,
): (Range | readonly EndpointInfo[])[] {
  const parts: (Range | readonly EndpointInfo[])[] = [];
  for (let at = index; at < changes.length; at += 1) {
    const change = changes[at];
    if (change?.kind === 'endpoints') parts.push(change.endpoints);
    else if (change?.kind === 'kept') parts.push(change);
    else break;
  }
  return parts;
}
