import { isDeepStrictEqual } from 'node:util';
import type {
  EndpointConditions,
  EndpointInfo,
  TopologyInfo,
} from '../api/generated/globalv1/api.ts';
import type {
  IPSet,
  PortMapping,
  PortName,
  Service,
  ServiceIPs,
} from '../api/generated/localv1/api.ts';

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
const NO_ADDRESSES: string[] = [];
const NO_IPS: IPSet = { v4: NO_ADDRESSES, v6: NO_ADDRESSES };
/** The most common one. */
const READY: EndpointConditions = { ready: true, serving: false, terminating: false };

/**
 * Messages as the store keeps them: equal parts are shared, as in a large cluster copies would take most of the
 * memory.
 */
export class Compactor {
  readonly #topologies = new Shared<TopologyInfo>();
  readonly #ports = new Shared<PortMapping[]>();
  readonly #overrides = new Shared<PortName[]>();
  readonly #texts = new Shared<string>();

  service(service: Service): Service {
    const { ips, labels, annotations, ports, namespace, type } = service;
    return {
      ...service,
      namespace: this.#texts.of(namespace),
      type: this.#texts.of(type),
      ips: ips && serviceIPs(ips),
      labels: textsOf(labels),
      annotations: textsOf(annotations),
      ports: this.#ports.of(ports),
    };
  }

  /** Its hash is left out; see `endpointHash`. `source`: whose names it gets. */
  endpoint(
    info: EndpointInfo,
    source: { readonly namespace: string; readonly name: string; readonly serviceName: string },
    previous: EndpointInfo | undefined,
  ): EndpointInfo {
    const { conditions, topology, endpoint, hints } = info;
    return {
      hash: 0n,
      namespace: this.#texts.of(source.namespace),
      sourceName: source.name,
      serviceName: source.serviceName,
      endpoint: endpoint && {
        ...endpoint,
        ips: endpoint.ips && ipSet(endpoint.ips),
        portOverrides: this.#overrides.of(endpoint.portOverrides),
      },
      conditions: isUsual(conditions) ? READY : conditions,
      podName: info.podName,
      topology: topology && this.#topologies.of(topology),
      hints: isDeepStrictEqual(hints, previous?.hints) ? previous?.hints : hints,
    };
  }
}

function isUsual(conditions: EndpointConditions | undefined): boolean {
  return conditions?.ready === true && !conditions.serving && !conditions.terminating;
}

function textsOf(texts: Record<string, string>): Record<string, string> {
  for (const _ in texts) return texts;
  return NO_TEXTS;
}

function serviceIPs(ips: ServiceIPs): ServiceIPs {
  return {
    clusterIPs: ips.clusterIPs && ipSet(ips.clusterIPs),
    externalIPs: ips.externalIPs && ipSet(ips.externalIPs),
    headless: ips.headless,
    loadBalancerIPs: ips.loadBalancerIPs && ipSet(ips.loadBalancerIPs),
  };
}

function ipSet({ v4, v6 }: IPSet): IPSet {
  if (v4.length + v6.length === 0) return NO_IPS;
  return {
    v4: v4.length === 0 ? NO_ADDRESSES : v4,
    v6: v6.length === 0 ? NO_ADDRESSES : v6,
  };
}
