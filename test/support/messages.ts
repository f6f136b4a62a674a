/** Messages of the local API, short to write. */
import {
  Endpoint,
  OpItem,
  Service,
  type DeepPartial,
} from '../../src/api/generated/localv1/api.ts';

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
  return { op: { $case: 'delete', value: { set: 1, path } } };
}

export function setEndpoint(path: string, value: Endpoint): OpItem {
  return setBytes(2, path, Endpoint.encode(value).finish());
}

export function deleteEndpoint(path: string): OpItem {
  return { op: { $case: 'delete', value: { set: 2, path } } };
}

/** A Set with any set number, path and bytes. */
export function setBytes(set: number, path: string, bytes: Uint8Array): OpItem {
  const ref = { set: set as 1, path };
  return { op: { $case: 'set', value: { ref, bytes: Buffer.from(bytes) } } };
}
