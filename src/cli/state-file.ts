/** A state file as a source and as a sink. */
import { defineGlobalSink, defineGlobalSource } from './command.ts';
import { backoffFrom } from './flags/global.ts';
import { path, toggle } from './flags/kinds.ts';
import { flag, group } from './flags/table.ts';

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
  flags: group('Source: file', {
    input: flag(path(), 'globalv1-state.yaml', { help: 'The state file.', short: 'i' }),
  }),
  async start({ input }) {
    const { FileSource } = await import('../file/source.ts');
    return new FileSource({ path: input });
  },
});

export const toFile = defineGlobalSink({
  word: 'to-file',
  summary: 'Write the state to a YAML file whenever it changes',
  description: [
    'The file has the format that kpng writes and the source `file` reads. It is replaced atomically, at most ' +
      'once a second. What Go kpng cannot read is left out, unless --extensions is given.',
  ],
  examples: {
    'api to-file --output state.yaml': 'saves the state of a kpng server',
    'file -i state.yaml to-file -o copy.yaml': 'writes a state file in full',
  },
  flags: group('Sink: to-file', {
    output: flag(path(), 'global-state.yaml', { help: 'The file to write.', short: 'o' }),
    extensions: flag(toggle(), false, {
      help:
        'Also write what Go kpng cannot read: session affinity, endpoints that serve while they terminate, ' +
        'and hints for nodes.',
    }),
  }),
  async start({ output, extensions: extended }, { globals }, store) {
    const { FileSink } = await import('../file/sink.ts');
    const sink = new FileSink({ path: output, extended, store, backoff: backoffFrom(globals) });
    return { close: () => sink.close(), destroy: () => sink.close() };
  },
});
