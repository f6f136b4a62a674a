/** Random changes of a cluster, for property tests. */
import * as fc from 'fast-check';
import type { Cluster, Info } from './cluster.ts';

export type Step =
  | {
      readonly kind: 'service';
      readonly key: string;
      readonly local: boolean;
      readonly type: string;
    }
  | { readonly kind: 'deleteService'; readonly key: string }
  | {
      readonly kind: 'slice';
      readonly key: string;
      readonly slice: string;
      readonly infos: readonly Info[];
    }
  | { readonly kind: 'node'; readonly name: string; readonly zone: string }
  | { readonly kind: 'deleteNode'; readonly name: string };

export const KEYS = ['ns/a', 'ns/a-b', 'other/c'] as const;
export const NODES = ['n1', 'n2', 'n3'] as const;
const key = fc.constantFrom(...KEYS);
const node = fc.constantFrom(...NODES);
const zone = fc.constantFrom('z1', 'z2');

const info: fc.Arbitrary<Info> = fc
  .record({
    podName: fc.constantFrom('', 'p0', 'p1'),
    ip: fc.integer({ min: 1, max: 3 }),
    v6: fc.boolean(),
    node: fc.constantFrom('', ...NODES),
    state: fc.constantFrom('ready', 'ready', 'off', 'draining'),
    zones: fc.option(fc.uniqueArray(zone, { minLength: 1 }), { nil: undefined }),
  })
  .map(({ podName, ip, v6, node, state, zones }) => {
    const made: Info = {
      podName,
      endpoint: { ips: v6 ? { v6: [`fd00::${ip}`] } : { v4: [`10.0.0.${ip}`] } },
      conditions: {
        ready: state === 'ready',
        serving: state === 'draining',
        terminating: state === 'draining',
      },
      topology: { node },
    };
    if (zones !== undefined) made.hints = { zones };
    return made;
  });

export const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('service' as const),
      key,
      local: fc.boolean(),
      type: fc.constantFrom('ClusterIP', 'NodePort'),
    }),
  },
  fc.record({ kind: fc.constant('deleteService' as const), key }),
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('slice' as const),
      key,
      slice: fc.constantFrom('s1', 's2'),
      // The global API distinguishes endpoints of one slice by what they are, not by whose.
      infos: fc.uniqueArray(info, {
        maxLength: 4,
        selector: ({ endpoint }) => `${endpoint?.ips?.v4?.[0]} ${endpoint?.ips?.v6?.[0]}`,
      }),
    }),
  },
  fc.record({ kind: fc.constant('node' as const), name: node, zone }),
  fc.record({ kind: fc.constant('deleteNode' as const), name: node }),
);

/** Carries out a step. */
export function perform(cluster: Cluster, step: Step): void {
  switch (step.kind) {
    case 'service':
      cluster.service(step.key, { type: step.type, externalTrafficToLocal: step.local });
      break;
    case 'deleteService':
      cluster.deleteService(step.key);
      break;
    case 'slice':
      cluster.slice(step.key, step.slice, ...step.infos);
      break;
    case 'node':
      cluster.node(step.name, step.zone);
      break;
    case 'deleteNode':
      cluster.deleteNode(step.name);
  }
}

/** What is left of the steps: the last word about each thing, in another order. */
export function outcomeOf(steps: readonly Step[]): readonly Step[] {
  const last = new Map<string, Step>();
  for (const step of steps) {
    if (step.kind === 'service' || step.kind === 'deleteService') last.set(`s ${step.key}`, step);
    else if (step.kind === 'slice') {
      // A slice belongs to one service only.
      last.set(`e ${step.key.split('/')[0]}/${step.slice}`, step);
    } else last.set(`n ${step.name}`, step);
  }
  return [...last.values()].reverse();
}
