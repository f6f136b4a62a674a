import { join } from 'node:path';
import { NODE_NAME, writeState } from '../../../examples/support/state-file.ts';
import type { EngineName } from '../../support/command.ts';
import { SERVER_ADDRESS } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';
import { programPeer, type PeerKind } from './peer.ts';

const CLI = join(import.meta.dirname, '../../../bin/kpng-userspace.js');

/** This project with so many workers. */
export function oursWith(workers: number, engine: EngineName): PeerKind {
  const called = { word: `${engine}:${workers}`, title: `ours, ${engine} × ${workers}` };
  return ours(engine, [`--workers=${workers}`], called);
}

/** This project as users run it: a state file, rules by nftables unless the flags say otherwise, and one of its engines. */
export function ours(
  engine: EngineName,
  flags: readonly string[],
  called: Pick<PeerKind, 'word' | 'title'> = { word: engine, title: `ours, ${engine}` },
): PeerKind {
  return {
    ...called,
    udp: true,
    needs: 'nft',
    start: (node) =>
      programPeer(node, (folder) => {
        const input = join(folder, 'state.yaml');
        writeState(input, [
          {
            namespace: 'bench',
            name: 'server',
            clusterIP: node.service,
            ports: SERVICE_PORTS,
            endpoints: [{ name: 'server', address: SERVER_ADDRESS }],
          },
        ]);
        const line = `file --input=${input} to-local to-userspace --portal=nftables --engine=${engine}`;
        return [process.execPath, CLI, ...line.split(' '), `--node-name=${NODE_NAME}`, ...flags];
      }),
  };
}
