import { nodePortAddresses } from '../../portal/node-addresses.ts';
import type { HealthCheckSink } from '../../sinks/healthchecks/sink.ts';
import { inheritServer } from '../inherit-server.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';

export interface HealthCheckOptions {
  /** Networks, addresses, or `primary`, `localhost`, `all`; empty: every address of the host. */
  readonly addresses: readonly string[];
  /** The host's addresses now; by default from Node. */
  readonly host?: () => readonly HostAddress[];
  /** Whether the proxy of this process works. Absent: there is none. */
  readonly healthy?: () => boolean;
}

/** Creates the servers of the health-check node ports. */
export async function createHealthChecks(options: HealthCheckOptions): Promise<HealthCheckSink> {
  const { addresses: wanted, host = hostAddresses, healthy } = options;
  const { HealthCheckSink } = await import('../../sinks/healthchecks/sink.ts');
  // One listener serves all addresses of both families.
  const everywhere = wanted.length === 0 || wanted.includes('all');
  return new HealthCheckSink({
    addresses: () => (everywhere ? [''] : nodePortAddresses(wanted, host())),
    inherit: inheritServer,
    ...(healthy !== undefined && { healthy }),
  });
}
