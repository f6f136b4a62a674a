/** The ways from client to server that are compared. */
import { tempFolder } from '../../../examples/support/temp-folder.ts';
import type { PeerNode } from '../network.ts';
import { startProgram } from '../program.ts';

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
  /** The command that it needs on the PATH. */
  readonly needs?: string;
  /** Opens it. What throws here leaves the peer out, with the cause. */
  start(node: PeerNode): Promise<Peer>;
}

/** A program with a folder of its own. `configure` writes there what it needs, and returns its command line. */
export async function programPeer(
  node: PeerNode,
  configure: (folder: string) => readonly string[] | Promise<readonly string[]>,
  pidsOf: (pid: number) => readonly number[] = (pid) => [pid],
): Promise<Peer> {
  const folder = tempFolder('bench-peer');
  const program = startProgram(node.command(...(await configure(folder.path))));
  return {
    address: node.service,
    pids: () => pidsOf(program.pid),
    check: () => program.check(),
    async close() {
      await program.kill();
      folder.remove();
    },
  };
}
