/** A UDP proxy in a process of its own, for tests of its memory and of the system's limits. */
import type { ServicePortCounters } from '../../../src/proxysocket/counters.ts';
import type { EndpointSpec } from '../../../src/proxysocket/spec.ts';
import { systemClock } from '../../../src/util/clock.ts';
import { UdpRig } from '../../support/udp-rig.ts';

/** The answer to `counters`. */
export interface ChildState {
  readonly port: number;
  readonly counters: ServicePortCounters;
}

const rig = new UdpRig({ teardown: () => undefined }, { clock: systemClock });
const owner = rig.service(JSON.parse(process.argv[2] ?? '[]') as EndpointSpec[]);
const { boundPort: port } = await rig.listen(owner);

process.on('message', (question) => {
  // Reading the memory takes a descriptor, and there may be none.
  if (question === 'memory') process.send?.(process.memoryUsage.rss());
  else process.send?.({ port, counters: owner.counters } satisfies ChildState);
});
process.on('disconnect', () => process.exit(0));
process.send?.('ready');
