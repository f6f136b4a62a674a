import type {
  EndpointConditions,
  EndpointInfo,
  TopologyInfo,
} from '../api/generated/globalv1/api.ts';
import type {
  IPFilter,
  IPSet,
  PortMapping,
  PortName,
  Service,
} from '../api/generated/localv1/api.ts';
import { isEqual } from '../util/compare.ts';

/** Values of which there may be very many are not shared. */
const MAX_SHARED = 50_000;

/** Values that many messages have, each kept once. */
class Shared<T> {
  readonly #values = new Map<string, T>();

  /** An equal value, always the same object. */
  of(value: T): T {
    const key = typeof value === 'string' ? value : JSON.stringify(value);
    const known = this.#values.get(key);
    if (known !== undefined) return known;
    // Values come and go; current ones are added again at once.
    if (this.#values.size >= MAX_SHARED) this.#values.clear();
    this.#values.set(key, value);
    return value;
  }
}

const NO_TEXTS: Record<string, string> = {};
const NO_FILTERS: IPFilter[] = [];
const NO_ADDRESSES: string[] = [];
const NO_IPS: IPSet = { v4: NO_ADDRESSES, v6: NO_ADDRESSES };
/** The most common one. */
const READY: EndpointConditions = { ready: true, serving: false, terminating: false };

/**
 * Replaces parts of messages with equal ones that are kept once: in a large cluster, copies would take most of the
 * memory.
 */
export class Compactor {
  readonly #topologies = new Shared<TopologyInfo>();
  readonly #ports = new Shared<PortMapping[]>();
  readonly #overrides = new Shared<PortName[]>();
  readonly #texts = new Shared<string>();

  compactService(service: Service): void {
    const { ips, labels, annotations } = service;
    service.namespace = this.#texts.of(service.namespace);
    service.type = this.#texts.of(service.type);
    service.labels = isEmpty(labels) ? NO_TEXTS : labels;
    service.annotations = isEmpty(annotations) ? NO_TEXTS : annotations;
    service.ports = this.#ports.of(service.ports);
    if (service.ipFilters.length === 0) service.ipFilters = NO_FILTERS;
    if (ips === undefined) return;
    ips.clusterIPs = ips.clusterIPs && ipSet(ips.clusterIPs);
    ips.externalIPs = ips.externalIPs && ipSet(ips.externalIPs);
    ips.loadBalancerIPs = ips.loadBalancerIPs && ipSet(ips.loadBalancerIPs);
  }

  /** `previous`: an endpoint that is likely to have the same hints. */
  compactEndpoint(info: EndpointInfo, previous: EndpointInfo | undefined): void {
    const { conditions, topology, endpoint, hints } = info;
    info.namespace = this.#texts.of(info.namespace);
    if (isUsual(conditions)) info.conditions = READY;
    info.topology = topology && this.#topologies.of(topology);
    if (isEqual(hints, previous?.hints)) info.hints = previous?.hints;
    if (endpoint === undefined) return;
    endpoint.ips = endpoint.ips && ipSet(endpoint.ips);
    endpoint.portOverrides = this.#overrides.of(endpoint.portOverrides);
  }
}

function isUsual(conditions: EndpointConditions | undefined): boolean {
  return conditions?.ready === true && !conditions.serving && !conditions.terminating;
}

function isEmpty(texts: Record<string, string>): boolean {
  for (const _ in texts) return false;
  return true;
}

function ipSet(set: IPSet): IPSet {
  const { v4, v6 } = set;
  if (v4.length + v6.length === 0) return NO_IPS;
  if (v4.length === 0) set.v4 = NO_ADDRESSES;
  if (v6.length === 0) set.v6 = NO_ADDRESSES;
  return set;
}
