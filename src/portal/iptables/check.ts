/** Whether iptables can be used here. */
import { randomBytes } from 'node:crypto';
import type { Family } from '../../util/family.ts';
import type { Exec } from '../exec.ts';
import type { Redirect } from '../redirect-plan.ts';
import { Elements } from '../rules/elements.ts';
import { problemOf, type ToolError } from '../tool-failure.ts';
import { Kernel, type Tools } from './tools.ts';
import { renderTrial } from './script.ts';
import { rulesOf } from './translate.ts';

/** The families that iptables can write rules for, and why not the others. */
export interface Usable {
  readonly families: readonly Family[];
  readonly problems: ReadonlyMap<Family, ToolError>;
}

/** Lets the kernel accept rules of every kind in a chain without packets, and removes it, in each family. */
export async function tryIptables(
  exec: Exec,
  tools: Tools,
  families: readonly Family[],
): Promise<Usable> {
  const kernel = new Kernel(exec, tools);
  const problems = new Map<Family, ToolError>();
  const doing = 'checking whether iptables can be used';
  const attempts = families.map(async (family) => {
    const problem = await problemOf(kernel.restore(family, trial(family), doing));
    if (problem !== undefined) problems.set(family, problem);
  });
  await Promise.all(attempts);
  return { families: families.filter((family) => !problems.has(family)), problems };
}

function trial(family: Family): string {
  const elements = new Elements();
  elements.set('check', rulesOf('check', examples(family), [{ family, protocol: 'TCP', port: 1 }]));
  const config = {
    owner: 'check',
    families: [family],
    targets: { 4: '192.0.2.1', 6: '2001:db8::1' },
    nodePortNetworks: { 4: ['192.0.2.0/24'], 6: ['2001:db8::/32'] },
  };
  // An unused prefix: neither existing chains nor another process that checks at the same time affect it.
  const prefix = `check${randomBytes(4).toString('hex')}`;
  return renderTrial({ prefix, family, config }, elements);
}

/** One of each kind: redirected and rejected, for all clients and for some, service address and node port. */
function examples(family: Family): Redirect[] {
  const [own, range] =
    family === 6 ? ['2001:db8::1', '2001:db8::/32'] : ['192.0.2.1', '192.0.2.0/24'];
  return [undefined, own].flatMap((address) =>
    [1, undefined].flatMap((proxyPort) =>
      (['TCP', 'UDP'] as const).map((protocol): Redirect => {
        const port = protocol === 'TCP' ? 1 : 2;
        const common = { protocol, address, port, traffic: 'external' } as const;
        const portal =
          address === undefined
            ? ({ ...common, kind: 'nodePort', sourceRanges: [] } as const)
            : ({ ...common, kind: 'loadBalancerIP', sourceRanges: [range] } as const);
        return { family, portal, proxyPort };
      }),
    ),
  );
}
