import { join } from 'node:path';
import { NODE_NAME, writeState } from '../../../examples/support/state-file.ts';
import { tempFolder } from '../../../examples/support/temp-folder.ts';
import { SERVER_ADDRESS } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';
import { startProgram } from '../program.ts';
import type { Peer, PeerKind } from './peer.ts';

const CLI = join(import.meta.dirname, '../../../src/cli/main.ts');

type Engine = 'node' | 'linux';

/** This project with so many workers. */
export function oursWith(workers: number, engine: Engine, flags: readonly string[] = []): PeerKind {
  const called = { word: `${engine}:${workers}`, title: `ours, ${engine} × ${workers}` };
  return ours(engine, [`--workers=${workers}`, ...flags], called);
}

/** This project as users run it: a state file, rules by nftables unless the flags say otherwise, and one of its engines. */
export function ours(
  engine: Engine,
  flags: readonly string[] = [],
  called: Pick<PeerKind, 'word' | 'title'> = { word: engine, title: `ours, ${engine}` },
): PeerKind {
  return {
    ...called,
    udp: true,
    needs: { command: 'nft', package: 'nftables' },
    async start(node): Promise<Peer> {
      const folder = tempFolder('bench');
      const input = join(folder.path, 'state.yaml');
      writeState(input, [
        {
          namespace: 'bench',
          name: 'server',
          clusterIP: node.service,
          ports: SERVICE_PORTS,
          endpoints: [{ name: 'server', address: SERVER_ADDRESS }],
        },
      ]);
      const program = startProgram(
        node.command(
          process.execPath,
          CLI,
          'file',
          `--input=${input}`,
          'to-local',
          'to-userspace',
          '--portal=nftables',
          `--engine=${engine}`,
          `--node-name=${NODE_NAME}`,
          ...flags,
        ),
      );
      return {
        address: node.service,
        pids: () => [program.pid],
        check: () => program.check(),
        async close() {
          await program.kill();
          folder.remove();
        },
      };
    },
  };
}
