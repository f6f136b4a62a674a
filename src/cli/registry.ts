import type { SinkCommand, SourceCommand } from './command.ts';
import { toApi } from './sinks/to-api.ts';
import { toCallout } from './sinks/to-callout.ts';
import { toExtip } from './sinks/to-extip.ts';
import { toFile } from './sinks/to-file.ts';
import { toHealthChecks } from './sinks/to-healthchecks.ts';
import { toJson } from './sinks/to-json.ts';
import { toUserspace, toUserspaceLinux, toUserspaceWindows } from './sinks/to-userspace.ts';
import { apiSource } from './sources/api.ts';
import { fileSource } from './sources/file.ts';
import { kubeSource } from './sources/kube.ts';
import { localSource } from './sources/local.ts';

/** Every word of the command line. A new source or sink is one file and one entry here. */
export interface Registry {
  readonly sources: readonly SourceCommand[];
  readonly sinks: readonly SinkCommand[];
  /** Words that belong to the grammar but are not in this version: they get an error that says so. */
  readonly planned: readonly string[];
  /** Backends of kpng that this program does not replace. */
  readonly foreign: readonly string[];
}

export const REGISTRY: Registry = {
  sources: [kubeSource, fileSource, apiSource, localSource],
  sinks: [
    toUserspace,
    toUserspaceLinux,
    toUserspaceWindows,
    toJson,
    toCallout,
    toExtip,
    toHealthChecks,
    toApi,
    toFile,
  ],
  planned: ['demo'],
  foreign: ['to-iptables', 'to-ipvs', 'to-nft', 'to-ebpf', 'to-winkernel'],
};
