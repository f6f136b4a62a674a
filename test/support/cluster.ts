/** A store of cluster-wide state, short to write to. */
import * as fc from 'fast-check';
import { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import type { DeepPartial, Service, Endpoint } from '../../src/api/generated/localv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { GlobalStore, type GlobalTransaction } from '../../src/store/global-store.ts';
import type { Policies, ViewNode } from '../../src/store/selection.ts';
import { endpointsIn, ServiceViews } from '../../src/store/service-views.ts';
import { service } from './messages.ts';

export type Info = DeepPartial<EndpointInfo>;

/** An endpoint of a pod; without a node it is nowhere in particular. */
export function pod(podName: string, v4: string, node = '', more: Info = {}): Info {
  return {
    podName,
    endpoint: { ips: { v4: [v4] } },
    conditions: { ready: true },
    ...(node === '' ? {} : { topology: { node } }),
    ...more,
  };
}

/** An endpoint without a pod. */
export function anonymous(v4: string, node = '', more: Info = {}): Info {
  return pod('', v4, node, more);
}

const NOT_READY: Info = { conditions: { ready: false } };
const DRAINING: Info = { conditions: { ready: false, serving: true, terminating: true } };

export function notReady(info: Info): Info {
  return { ...info, ...NOT_READY };
}

export function draining(info: Info): Info {
  return { ...info, ...DRAINING };
}

/** The messages of a slice's endpoints, as a source hands them over. */
export function sliceOf(key: string, name: string, infos: readonly Info[]) {
  const [namespace = '', serviceName = ''] = key.split('/');
  const names = { namespace, sourceName: name, serviceName };
  const endpoints = infos.map((info) => EndpointInfo.fromPartial({ ...info, ...names }));
  return { namespace, name, serviceName, endpoints };
}

/** Writes to a store; each call is a transaction of its own unless made within `at once`. */
export class Cluster {
  readonly store: GlobalStore;
  #transaction: GlobalTransaction | undefined;

  constructor(store: GlobalStore) {
    this.store = store;
  }

  /** `key` is `namespace/name`. */
  service(key: string, more: DeepPartial<Service> = {}): this {
    return this.#write((transaction) => transaction.setService(key, service(key, more)));
  }

  deleteService(key: string): this {
    return this.#write((transaction) => transaction.setService(key, undefined));
  }

  /** Replaces the endpoints of a slice; its name is that of the service with `-slice` unless given. */
  endpoints(key: string, ...infos: readonly Info[]): this {
    return this.slice(key, `${key.split('/')[1]}-slice`, ...infos);
  }

  slice(key: string, name: string, ...infos: readonly Info[]): this {
    return this.#write((transaction) => transaction.setSource(sliceOf(key, name, infos)));
  }

  node(name: string, zone = '', more: DeepPartial<Node> = {}): this {
    const node = Node.fromPartial({ name, topology: { node: name, zone }, ...more });
    return this.#write((transaction) => transaction.setNode(name, node));
  }

  deleteNode(name: string): this {
    return this.#write((transaction) => transaction.setNode(name, undefined));
  }

  complete(): this {
    return this.#write((transaction) => transaction.setComplete());
  }

  /** Several changes in one transaction. */
  atOnce(change: (cluster: this) => unknown): this {
    this.store.update((transaction) => {
      this.#transaction = transaction;
      change(this);
      this.#transaction = undefined;
    });
    return this;
  }

  #write(change: (transaction: GlobalTransaction) => void): this {
    if (this.#transaction !== undefined) change(this.#transaction);
    else this.store.update(change);
    return this;
  }
}

/** An empty cluster whose state is not complete. */
export async function emptyCluster(): Promise<Cluster> {
  return new Cluster(new GlobalStore({ hasher: await loadHasher() }));
}

/** Random changes of a cluster, for property tests. */

/** A method of a cluster and its arguments. */
export type Step = readonly [
  'service' | 'deleteService' | 'slice' | 'node' | 'deleteNode',
  ...args: unknown[],
];

export const KEYS = ['ns/a', 'ns/a-b', 'other/c'] as const;
export const NODES = ['n1', 'n2', 'n3'] as const;
const key = fc.constantFrom(...KEYS);
const node = fc.constantFrom(...NODES);
const zone = fc.constantFrom('z1', 'z2');

/** Any endpoint, which may share its pod or its address with others. */
export const anyInfo: fc.Arbitrary<Info> = fc
  .record({
    podName: fc.constantFrom('', 'p0', 'p1', 'p2'),
    ip: fc.integer({ min: 1, max: 4 }),
    v6: fc.boolean(),
    port: fc.integer({ min: 1, max: 2 }),
    node: fc.constantFrom('', ...NODES),
    state: fc.constantFrom('ready', 'ready', 'draining', 'serving', 'terminating', 'off', 'absent'),
    zones: fc.option(fc.uniqueArray(zone), { nil: undefined }),
    nodes: fc.option(fc.uniqueArray(node), { nil: undefined }),
  })
  .map(({ podName, ip, v6, port, node, state, zones, nodes }): Info => {
    const serving = state === 'draining' || state === 'serving';
    const terminating = state === 'draining' || state === 'terminating';
    const conditions = { ready: state === 'ready', serving, terminating };
    const ips = v6 ? { v6: [`fd00::${ip}`] } : { v4: [`10.0.0.${ip}`] };
    const made: Info = { podName, endpoint: { ips, portOverrides: [{ name: 'http', port }] } };
    if (state !== 'absent') made.conditions = conditions;
    if (node !== '' || !v6) made.topology = { node };
    if (zones !== undefined || nodes !== undefined) {
      made.hints = { zones: zones ?? [], nodes: nodes ?? [] };
    }
    return made;
  });

// The global API distinguishes endpoints of one slice by what they are, not by whose.
const infos = fc.uniqueArray(anyInfo, {
  maxLength: 4,
  selector: ({ endpoint }) => `${endpoint?.ips?.v4?.[0]} ${endpoint?.ips?.v6?.[0]}`,
});
const serviceFields = fc.record({
  type: fc.constantFrom('ClusterIP', 'NodePort'),
  externalTrafficToLocal: fc.boolean(),
});

function call(method: Step[0], ...args: fc.Arbitrary<unknown>[]): fc.Arbitrary<Step> {
  return fc.tuple(fc.constant(method), ...args).map((values) => values.flat() as unknown as Step);
}

export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: call('service', key, serviceFields) },
  call('deleteService', key),
  { weight: 4, arbitrary: call('slice', key, fc.constantFrom('s1', 's2'), infos) },
  call('node', node, zone),
  call('deleteNode', node),
);

/** Carries out a step. */
export function perform(cluster: Cluster, [method, ...args]: Step): void {
  (cluster[method] as (...args: unknown[]) => unknown).apply(cluster, args);
}

const hasher = await loadHasher();

/** The endpoints of a service as one node needs them, by key, in order of the key. */
export function localEndpoints(
  policies: Policies,
  infos: readonly EndpointInfo[],
  node: ViewNode,
): ReadonlyMap<string, Endpoint> {
  const found = [...endpointsIn(new ServiceViews(policies, infos, hasher).of(node)).values()];
  found.sort((a, b) => (a.key < b.key ? -1 : 1));
  return new Map(found.map(({ key, endpoint }) => [key, endpoint]));
}
