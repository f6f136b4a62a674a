import { defineGlobalSource } from '../command.ts';
import { path } from '../flags/kinds.ts';
import { flag, group } from '../flags/table.ts';

export const fileSource = defineGlobalSource({
  word: 'file',
  summary: 'Services, endpoints and nodes from a YAML or JSON state file, reloaded when it changes',
  description: [
    'The file has the format of `kpng ... to-file`: the global state, with the lists services, endpoints and ' +
      'nodes, from which the local view of the node is derived.',
    'A file with errors changes nothing: the errors are logged and the last good state is served.',
  ],
  examples: {
    'file --input state.yaml to-local to-userspace': 'proxies the services of state.yaml',
    'file -i state.yaml to-json --node-name node-1': 'prints the local view of node-1',
  },
  flags: {
    ...group('Source: file', {
      input: flag(path(), 'globalv1-state.yaml', { help: 'The state file.', short: 'i' }),
    }),
  },
  async start({ input }) {
    const { FileSource } = await import('../../file/source.ts');
    return new FileSource({ path: input });
  },
});
