import type { Abuse } from '../scenario.ts';
import { blackHoles } from './black-holes.ts';
import { configFiles } from './config-files.ts';
import { datagrams } from './datagrams.ts';
import { diskFull } from './disk-full.ts';
import { fewDescriptors1024, fewDescriptors256 } from './few-descriptors.ts';
import { flapping } from './flapping.ts';
import { floodConnections } from './flood-connections.ts';
import { floodDatagrams } from './flood-datagrams.ts';
import { handover, killed, killedSuccessor, twoSuccessors } from './handover.ts';
import { hostileHttp } from './hostile-http.ts';
import { apiClients } from './kpng-clients.ts';
import { junkServer, neverSync, orphans } from './kpng-servers.ts';
import { kubeDripping, kubeEndlessPages, kubeInformational, kubeSingleBytes } from './kube-api.ts';
import { logDiskFull, logUnread } from './logs.ts';
import { neverEnding } from './never-ending.ts';
import { neverReading } from './never-reading.ts';
import { pipelinedHttp } from './pipelined-http.ts';
import { slowHttp } from './slow-http.ts';
import { stateFiles } from './state-files.ts';
import { heldPorts, sourceRanges, tmpdirFull } from './rules.ts';
import { streams } from './streams.ts';

/** In the order of the page. */
export const ABUSES: readonly Abuse[] = [
  streams,
  datagrams,
  fewDescriptors256,
  fewDescriptors1024,
  neverReading,
  neverEnding,
  floodConnections,
  floodDatagrams,
  blackHoles,
  flapping,
  pipelinedHttp,
  slowHttp,
  hostileHttp,
  neverSync,
  orphans,
  junkServer,
  apiClients,
  kubeSingleBytes,
  kubeEndlessPages,
  kubeDripping,
  kubeInformational,
  configFiles,
  stateFiles,
  handover,
  twoSuccessors,
  killed,
  killedSuccessor,
  logUnread,
  logDiskFull,
  diskFull,
  tmpdirFull,
  heldPorts,
  sourceRanges,
];
