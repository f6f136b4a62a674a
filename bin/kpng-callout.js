#!/usr/bin/env node
// kpng's example program: runs $CALLOUT at every change, with the local view of a kpng server as JSON.
import { start } from './start.js';

await start(['local', 'to-callout']);
