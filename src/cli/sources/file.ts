import { KpngError } from '../../errors.ts';
import { defineGlobalSource } from '../command.ts';
import { text } from '../flags/kinds.ts';
import { flag, group } from '../flags/table.ts';

export const fileSource = defineGlobalSource({
  word: 'file',
  summary: 'Services, endpoints and nodes from a YAML state file, read again whenever it changes',
  description: [
    'The file has the form of `kpng ... to-file`: the global state, with the lists services, ' +
      'endpoints and nodes. The part of it that the node needs is worked out here.',
    'A file with an error changes nothing: the error is logged and the last good state stays.',
  ],
  examples: [
    {
      line: 'file --input state.yaml to-local to-userspace',
      does: 'proxies the services of state.yaml',
    },
    {
      line: 'file -i state.yaml to-json --node-name node-1',
      does: 'prints what node-1 would be told',
    },
  ],
  flags: {
    ...group('Source: file', {
      input: flag(text('path'), 'globalv1-state.yaml', 'The state file.', { short: 'i' }),
    }),
  },
  read(values) {
    if (values.input === '') throw new KpngError('KPNG_USAGE', '--input: expected a path');
    return { input: values.input };
  },
  async start({ input }) {
    const { FileSource } = await import('../../file/source.ts');
    return new FileSource({ path: input });
  },
});
