import { hostname } from 'node:os';
import { KpngError } from '../../errors.ts';
import { text } from './kinds.ts';
import { flag, group } from './table.ts';

/** Flags of every backend. */
export const NODE_FLAGS = group('Node', {
  'node-name': flag(
    text('name'),
    hostname(),
    'Name of this node in the cluster, exactly as written there. It selects local endpoints, topology hints ' +
      'and traffic policies.',
    { aliases: ['hostname-override'], defaultText: 'the host name' },
  ),
});

/** Throws a usage error for a name that no node can have. */
export function checkNodeName(name: string): string {
  if (name !== '' && !/[\s\p{Cc}/]/u.test(name)) return name;
  throw new KpngError('KPNG_USAGE', `--node-name ${JSON.stringify(name)}: not the name of a node`);
}
