import { extname } from 'node:path';
import { threadModule } from '../../util/bundle.ts';

/** What a thread of the `node` engine runs, for whoever starts one. */
export const NODE_THREAD = {
  kind: 'node',
  module: threadModule(
    'node-worker',
    new URL(`./main${extname(import.meta.url)}`, import.meta.url),
  ),
} as const;
