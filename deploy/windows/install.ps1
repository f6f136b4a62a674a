<#
.SYNOPSIS
Makes services of the controller and of the proxy on a Windows node, and starts them.

.DESCRIPTION
A thin layer: the programs do the work, with NSSM (https://nssm.cc). May be run again; what has changed counts from
then on. -Uninstall takes both services away, and the addresses that the proxy has added.

.EXAMPLE
.\install.ps1 -KubeConfig C:\k\config
#>
[CmdletBinding()]
param(
    # The folder with kpng.exe, winuserspace.exe and, if it is not on the PATH, nssm.exe.
    [string] $Folder = $PSScriptRoot,
    [string] $KubeConfig = 'C:\k\config',
    # The interface for service addresses. Empty: the program looks for one.
    [string] $Interface = '',
    [string] $NodeName = $env:COMPUTERNAME.ToLower(),
    [int] $Verbosity = 2,
    [switch] $Uninstall
)

$ErrorActionPreference = 'Stop'
$kpng = Join-Path $Folder 'kpng.exe'
$proxy = Join-Path $Folder 'winuserspace.exe'

function Invoke-Program([string] $Program, [string[]] $Arguments) {
    & $Program @Arguments
    if ($LASTEXITCODE -ne 0) {
        throw "$Program $($Arguments -join ' ') has ended with $LASTEXITCODE"
    }
}

if ($Uninstall) {
    Invoke-Program $proxy @('service', 'uninstall', '--name', 'winuserspace')
    Invoke-Program $kpng @('service', 'uninstall', '--name', 'kpng')
    Invoke-Program $proxy @('cleanup', "--portal-interface=$Interface")
    return
}

$environment = @()
if ($Interface -ne '') {
    $environment = @('--env', "INTERFACE_TO_ADD_SERVICE_IP=$Interface")
}

$controller = @('service', 'install', '--name', 'kpng', '--')
$controller += @('kube', '--kubeconfig', $KubeConfig, 'to-api')
Invoke-Program $kpng $controller

$backend = @('service', 'install', '--name', 'winuserspace', '--depends-on', 'kpng') + $environment + @('--')
$backend += @('local', 'to-winuserspace', '--node-name', $NodeName, "-v=$Verbosity")
Invoke-Program $proxy $backend

foreach ($name in @('winuserspace', 'kpng')) {
    Invoke-Program $proxy @('service', 'stop', '--name', $name)
}
foreach ($name in @('kpng', 'winuserspace')) {
    Invoke-Program $proxy @('service', 'start', '--name', $name)
}
