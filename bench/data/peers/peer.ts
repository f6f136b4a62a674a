/** The ways from client to server that are compared. */
import type { PeerNode } from '../network.ts';

/** A way that is open. */
export interface Peer {
  /** Where clients find the services. */
  readonly address: string;
  /** Processes whose CPU and memory count; none where the kernel does it. */
  pids(): readonly number[];
  /** Throws an Error that says why, if it does not run any more. */
  check(): void;
  close(): Promise<void>;
}

export interface PeerKind {
  /** For flags and the JSON. */
  readonly word: string;
  /** What the page calls it. */
  readonly title: string;
  /** Whether it carries datagrams. */
  readonly udp: boolean;
  /** The command that it needs on the PATH, and the Debian package of it. */
  readonly needs?: { readonly command: string; readonly package: string };
  /** Opens it. What throws here leaves the peer out, with the cause. */
  start(node: PeerNode): Promise<Peer>;
}
