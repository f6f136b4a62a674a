import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import type {
  PortalKind,
  PortalPlan,
  PortalSpec,
  ServicePortPortals,
} from '../../src/portal/portal.ts';
import { type Element, Elements } from '../../src/portal/rules/backend.ts';

/** A portal: `clusterIP 10.0.0.1:80`, `nodePort 30080`, and `/UDP` at the end. */
export function portal(text: string, sourceRanges: readonly string[] = []): PortalSpec {
  const [kind = '', place = ''] = text.replace('/UDP', '').split(' ');
  const at = place.lastIndexOf(':');
  return {
    kind: kind as PortalKind,
    protocol: text.endsWith('/UDP') ? 'UDP' : 'TCP',
    address: at === -1 ? undefined : place.slice(0, at),
    port: Number(place.slice(at + 1)),
    traffic: kind === 'clusterIP' ? 'internal' : 'external',
    sourceRanges,
  };
}

/** A service port with its portals, and endpoints for all traffic. */
export function wants(
  servicePort: string,
  ...portals: (string | PortalSpec)[]
): ServicePortPortals {
  return {
    servicePort,
    portals: portals.map((each) => (typeof each === 'string' ? portal(each) : each)),
    served: { internal: true, external: true },
    splitTraffic: true,
  };
}

/** The listeners of a plan, as texts. */
export function listening(plan: PortalPlan): Record<string, string[]> {
  return Object.fromEntries(
    [...plan].map(([name, list]) => [
      name,
      list.map(({ address, port, traffic }) => `${address}:${port} ${traffic}`),
    ]),
  );
}

/** Removes and adds elements, each of which has an owner of its own. */
export function update(
  elements: Elements,
  remove: readonly Element[],
  add: readonly Element[],
): void {
  for (const { set, key } of remove) elements.set(`${set} ${key}`, []);
  for (const element of add) elements.set(`${element.set} ${element.key}`, [element]);
}

export function elementsOf(...add: readonly Element[]): Elements {
  const elements = new Elements();
  update(elements, [], add);
  return elements;
}

/** Compares a script with a file in `test/portal`; with UPDATE_GOLDEN=1, the file is written. */
export function isGolden(t: Test, script: string, file: string): void {
  const path = join(import.meta.dirname, '../portal', file);
  if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(path, script);
  t.equal(script, readFileSync(path, 'utf8'), file);
}
