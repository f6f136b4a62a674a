import { defineSink } from '../command.ts';
import { checkNodeName, NODE_FLAGS } from '../flags/node.ts';

export const toJson = defineSink({
  word: 'to-json',
  summary: 'Print every change to standard output as JSON, as kpng-json does',
  description: [
    'One JSON object for each change set, for jq and scripts. Nothing is proxied. The program ends ' +
      'well when its reader goes away.',
    'The servers for metrics and health run only if their flags are given.',
  ],
  examples: [
    { line: 'local to-json | jq .', does: 'shows what a kpng server tells this node' },
    { line: 'file -i state.yaml to-json', does: 'shows what a state file means for this node' },
  ],
  toLocalOptional: true,
  servesByDefault: false,
  flags: NODE_FLAGS,
  read: (values) => ({ nodeName: checkNodeName(values['node-name']) }),
  async start() {
    throw new Error('not yet');
  },
});
