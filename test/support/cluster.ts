/** A store of cluster-wide state, short to write to. */
import { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { GlobalStore, type GlobalStoreOptions } from '../../src/store/global-store.ts';
import type { GlobalTransaction } from '../../src/store/global-transaction.ts';
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
    return this.#write((transaction) => transaction.setService(service(key, more)));
  }

  deleteService(key: string): this {
    const [namespace = '', name = ''] = key.split('/');
    return this.#write((transaction) => transaction.deleteService(namespace, name));
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
    return this.#write((transaction) => transaction.setNode(node));
  }

  deleteNode(name: string): this {
    return this.#write((transaction) => transaction.deleteNode(name));
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
export async function emptyCluster(options: Partial<GlobalStoreOptions> = {}): Promise<Cluster> {
  return new Cluster(new GlobalStore({ hasher: await loadHasher(), ...options }));
}
