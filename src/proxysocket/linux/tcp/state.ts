import type { BalancerEndpoint } from '../../../roundrobin/types.ts';
import type { Family } from '../../../util/family.ts';
import type { RelayAddresses } from '../../events.ts';
import type { ServicePort } from '../../core/service-port.ts';
import type { Traffic } from '../../spec.ts';
import type { Deadline } from '../../core/deadlines.ts';
import type { Stay } from '../../tcp/waiting-room.ts';
import type { Connection } from './connection.ts';
import type { Relay } from './relay.ts';

/** Where the client came in. */
export interface Origin {
  readonly owner: ServicePort;
  readonly traffic: Traffic;
  readonly family: Family;
}

/** What a connection is doing. */
export type State =
  | { readonly kind: 'held'; readonly stay: Stay }
  | {
      readonly kind: 'connecting';
      readonly fd: number;
      readonly endpoint: BalancerEndpoint;
      readonly deadline: Deadline<Connection>;
      readonly startedAt: number;
    }
  | {
      readonly kind: 'relaying';
      readonly relay: Relay;
      readonly endpoint: BalancerEndpoint;
      readonly endpointFd: number;
      readonly startedAt: number;
      readonly addresses: RelayAddresses | undefined;
    }
  | { readonly kind: 'ended' };

export const ENDED: State = { kind: 'ended' };
