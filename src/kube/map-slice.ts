import type {
  EndpointConditions,
  EndpointInfo,
  TopologyHints,
} from '../api/generated/globalv1/api.ts';
import type { PortName } from '../api/generated/localv1/api.ts';
import type { EndpointSource } from '../store/global-transaction.ts';
import { ipSetOf, sortedUnique } from '../store/ip-set.ts';
import {
  type Json,
  type ObjectName,
  flag,
  isObject,
  list,
  object,
  text,
  texts,
  whole,
} from './json.ts';

const SERVICE_NAME = 'kubernetes.io/service-name';

/**
 * The endpoints of an EndpointSlice, by kpng's rules, for the service that its label names. A slice
 * without that label belongs to no service and has none.
 *
 * Unlike in kpng, the conditions `serving` and `terminating` are kept for an endpoint that is not
 * ready, hints for nodes are kept beside those for zones, and a port without a number (which means
 * every port) is left out instead of ending the program.
 */
export function mapSlice({ namespace, name }: ObjectName, raw: Json): EndpointSource {
  const labels = object(object(raw['metadata'])['labels']);
  const serviceName = text(labels[SERVICE_NAME]);
  if (serviceName === '') return { namespace, name, serviceName: '', endpoints: [] };
  const portOverrides = portNames(raw);
  const endpoints = list(raw['endpoints']).map((item): EndpointInfo => {
    const endpoint = object(item);
    const target = object(endpoint['targetRef']);
    return {
      hash: 0n,
      namespace,
      sourceName: name,
      serviceName,
      endpoint: {
        hostname: text(endpoint['hostname']),
        ips: ipSetOf(texts(endpoint['addresses'])),
        local: false,
        // One shared list: messages of the state never change.
        portOverrides,
        scopes: undefined,
      },
      conditions: conditionsOf(object(endpoint['conditions'])),
      podName: target['kind'] === 'Pod' ? text(target['name']) : '',
      topology: { node: text(endpoint['nodeName']), zone: text(endpoint['zone']) },
      hints: hintsOf(endpoint['hints']),
    };
  });
  return { namespace, name, serviceName, endpoints };
}

function portNames(raw: Json): PortName[] {
  return list(raw['ports'])
    .map((port) => ({ name: text(object(port)['name']), port: whole(object(port)['port']) }))
    .filter(({ port }) => port > 0);
}

const READY: EndpointConditions = { ready: true, serving: false, terminating: false };

/** As in the API: unknown readiness means ready; then conditions are absent. */
function conditionsOf(conditions: Json): EndpointConditions | undefined {
  const ready = flag(conditions['ready']);
  if (ready === undefined) return undefined;
  if (ready) return READY;
  const serving = flag(conditions['serving']) ?? false;
  return { ready, serving, terminating: flag(conditions['terminating']) ?? false };
}

function hintsOf(hints: unknown): TopologyHints | undefined {
  if (!isObject(hints)) return undefined;
  const names = (key: string): string[] =>
    sortedUnique(texts(list(hints[key]).map((hint) => object(hint)['name'])));
  return { zones: names('forZones'), nodes: names('forNodes') };
}
