/** Requests to the API server of the peer. */
import type { ChangeKind } from './subject.ts';

export const NODE_NAME = 'bench-node';

export type ApiRequest =
  /** Makes so many services; returns the server's address. */
  | { readonly do: 'open'; readonly services: number }
  /** When services and endpoints had both been asked for. */
  | { readonly do: 'askedAt' }
  | { readonly do: 'change'; readonly kind: ChangeKind; readonly n: number };
