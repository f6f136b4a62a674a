/** The commands of the pages that a reader follows step by step. */
import { testPage } from '../support/run-page.ts';

testPage('README.md');
testPage('docs/tutorial/getting-started.md');
testPage('docs/how-to/upgrade.md');
testPage('docs/how-to/troubleshoot.md');
