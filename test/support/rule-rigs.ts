import t, { type Test } from 'tap';
import { IptablesRig } from './iptables-rig.ts';
import { NftablesRig } from './nftables-rig.ts';
import type { RigOptions, RuleRig } from './rule-rig.ts';

/** Both flavours of iptables get the same scripts; what differs has tests of its own. */
const MAKERS: Readonly<Record<string, (options?: RigOptions) => RuleRig>> = {
  nftables: (options) => new NftablesRig(options),
  iptables: (options) => new IptablesRig(options, 'nft'),
};

/** Defines a test for each portal that writes rules. `make` makes a rig whose portal closes with the test. */
export function testEachRig(
  name: string,
  action: (t: Test, make: (options?: RigOptions) => RuleRig) => Promise<void>,
): void {
  for (const [kind, maker] of Object.entries(MAKERS)) {
    t.test(`${kind}: ${name}`, async (t) => {
      await action(t, (options) => {
        const rig = maker(options);
        t.teardown(() => rig.portal.close());
        return rig;
      });
    });
  }
}
