/** Messages of the local API, short to write. */
import {
  Endpoint,
  OpItem,
  Service,
  type DeepPartial,
} from '../../src/api/generated/localv1/api.ts';
import type { LocalChange, LocalView, ServiceEntry } from '../../src/store/local-view.ts';

/** A service as kpng sends it. `key` is `namespace/name`. */
export function service(key: string, more: DeepPartial<Service> = {}): Service {
  const [namespace = '', name = ''] = key.split('/');
  return Service.fromPartial({ namespace, name, type: 'ClusterIP', ...more });
}

/** A ready endpoint with one address. */
export function endpoint(v4: string, more: DeepPartial<Endpoint> = {}): Endpoint {
  const scopes = { internal: true, external: true };
  return Endpoint.fromPartial({ ips: { v4: [v4] }, scopes, ...more });
}

export const reset = OpItem.fromPartial({ op: { $case: 'reset', value: {} } });
export const sync = OpItem.fromPartial({ op: { $case: 'sync', value: {} } });

export function setService(value: Service, path = `${value.namespace}/${value.name}`): OpItem {
  return setBytes(1, path, Service.encode(value).finish());
}

export function deleteService(path: string): OpItem {
  return deletePath(1, path);
}

export function setEndpoint(path: string, value: Endpoint): OpItem {
  return setBytes(2, path, Endpoint.encode(value).finish());
}

export function deleteEndpoint(path: string): OpItem {
  return deletePath(2, path);
}

/** A Delete with any set number and path. */
export function deletePath(set: number, path: string): OpItem {
  return { op: { $case: 'delete', value: { set: set as 1, path } } };
}

/** A Set with any set number, path and bytes. */
export function setBytes(set: number, path: string, bytes: Uint8Array): OpItem {
  const ref = { set: set as 1, path };
  return { op: { $case: 'set', value: { ref, bytes: Buffer.from(bytes) } } };
}

/** Ports as `http TCP 80 8080`: name (`-` for none), protocol, port, target port. Node port after `@`. */
export function ports(...texts: string[]): NonNullable<DeepPartial<Service>['ports']> {
  return texts.map((text) => {
    const [main = '', nodePort = '0'] = text.split('@');
    const [name = '', protocol = 'TCP', number = '0', target = ''] = main.split(' ');
    const numeric = /^\d+$/.test(target);
    return {
      name: name === '-' ? '' : name,
      protocol: { TCP: 1, UDP: 2, SCTP: 3 }[protocol] as 1 | 2 | 3,
      port: Number(number),
      nodePort: Number(nodePort),
      targetPort: numeric ? Number(target) : 0,
      targetPortName: numeric ? '' : target,
    };
  });
}

/** An entry of a view. `endpoints` are addresses, or whole endpoints by key. */
export function entry(
  key: string,
  more: DeepPartial<Service>,
  endpoints: readonly string[] | Record<string, Endpoint> = [],
): ServiceEntry {
  const byKey = Array.isArray(endpoints)
    ? endpoints.map((address: string): [string, Endpoint] => [`pod-${address}`, endpoint(address)])
    : Object.entries(endpoints);
  return { key, service: service(key, more), endpoints: new Map(byKey) };
}

/** An entry with one cluster IP. */
export function clusterEntry(
  key: string,
  address: string,
  portText: string,
  endpoints: readonly string[] | Record<string, Endpoint> = [],
): ServiceEntry {
  return entry(key, { ips: { clusterIPs: { v4: [address] } }, ports: ports(portText) }, endpoints);
}

/** A view that tests change by hand. */
export class TestView implements LocalView {
  readonly #entries = new Map<string, ServiceEntry>();

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): ServiceEntry | undefined {
    return this.#entries.get(key);
  }

  entries(): Iterable<ServiceEntry> {
    return [...this.#entries.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /** The change set that these entries make. */
  set(...entries: readonly ServiceEntry[]): LocalChange {
    for (const each of entries) this.#entries.set(each.key, each);
    return { view: this, changed: new Set(entries.map(({ key }) => key)) };
  }

  remove(...keys: readonly string[]): LocalChange {
    for (const key of keys) this.#entries.delete(key);
    return { view: this, changed: new Set(keys) };
  }

  /** A change set that names these keys and changes nothing. */
  again(...keys: readonly string[]): LocalChange {
    return { view: this, changed: new Set(keys) };
  }
}
