{{/* The prefix of all names. */}}
{{- define "evenhand.name" -}}
{{- .Values.fullnameOverride -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "evenhand.labels" -}}
app.kubernetes.io/part-of: evenhand
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The label by which Services, budgets and policies select the pods of a part: (list $ "core"). */}}
{{- define "evenhand.selector" -}}
app.kubernetes.io/name: {{ include "evenhand.name" (index . 0) }}-{{ index . 1 }}
{{- end -}}

{{- define "evenhand.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret of a certificate: (list $ "core"). */}}
{{- define "evenhand.secret" -}}
{{- $part := index . 1 -}}
{{- with index . 0 -}}
{{- get .Values.tls.secrets $part | default (printf "%s-%s-tls" (include "evenhand.name" .) $part) -}}
{{- end -}}
{{- end -}}

{{/* The certificates that are needed, each with its name: core, shim, operator, metrics, and those of other parts that run. */}}
{{- define "evenhand.clients" -}}
{{- $names := list "shim" "operator" "follower" "metrics" -}}
{{- if .Values.console.enabled -}}
{{- $names = append $names "console" -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/*
The groups of cores. The first one is the core of an installation without groups. A group has the `part` of its selector and of
its names, the `suffix` of its other names, the `hosts` of a Service and of two cores, the `addresses` of its cores, and its row
in the table of cores.
*/}}
{{- define "evenhand.groups" -}}
{{- $name := include "evenhand.name" . -}}
{{- $core := .Values.core -}}
{{- $found := list -}}
{{- range $index, $given := concat (list $core.group) $core.groups -}}
{{- $suffix := ternary (printf "-%s" $given.name) "" (gt $index 0) -}}
{{- $part := printf "core%s" $suffix -}}
{{- $service := printf "%s-%s" $name $part -}}
{{- $cores := list -}}
{{- range list 0 1 -}}
{{- $cores = append $cores (printf "%s-%d.%s-cores%s" $service . $name $suffix) -}}
{{- end -}}
{{- $addresses := list -}}
{{- range ternary $cores (list $service) (eq (int $core.replicas) 2) -}}
{{- $addresses = append $addresses (printf "%s:50051" .) -}}
{{- end -}}
{{- $group := dict "part" $part "suffix" $suffix "hosts" (prepend $cores $service) "addresses" $addresses -}}
{{- $_ := set $group "historyUrl" (ternary ($given.historyUrl | default "") $core.history.url (gt $index 0)) -}}
{{- $_ := set $group "revision" ($given.revision | default 0) -}}
{{- $_ := set $group "partitions" ($given.partitions | default list) -}}
{{- $found = append $found (set $group "name" $given.name) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* The names in the certificate of the cores: for each group its Service and the names of two cores, and localhost for commands inside. */}}
{{- define "evenhand.coreNames" -}}
{{- $names := list -}}
{{- range include "evenhand.groups" . | fromJsonArray -}}
{{- range .hosts -}}
{{- $names = concat $names (list . (printf "%s.%s" . $.Release.Namespace) (printf "%s.%s.svc" . $.Release.Namespace)) -}}
{{- end -}}
{{- end -}}
{{- concat $names (list "localhost") .Values.tls.extraNames | toJson -}}
{{- end -}}

{{/* The option with which the shim and the console find the cores. */}}
{{- define "evenhand.reach" -}}
{{- if .Values.core.groups -}}
--cores=/etc/evenhand/cores/cores.yaml
{{- else -}}
--core={{ join "," (include "evenhand.groups" . | fromJsonArray | first).addresses }}
{{- end -}}
{{- end -}}

{{/* What every pod has: no links, no token, no root. */}}
{{- define "evenhand.pod" -}}
enableServiceLinks: false
# What places the cluster's pods is placed by the scheduler that is always there.
schedulerName: default-scheduler
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "evenhand.container" -}}
image: {{ include "evenhand.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where the pods of a part run: (list $ "core" .Values.core). */}}
{{- define "evenhand.placement" -}}
{{- $given := index . 2 -}}
{{- $selector := include "evenhand.selector" . -}}
{{- $two := eq (int $given.replicas) 2 -}}
{{- with $given.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $given.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $given.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $given.affinity }}
affinity:
  {{- toYaml $given.affinity | nindent 2 }}
{{- else if and $two (eq $given.spread.nodes "required") }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- $selector | nindent 12 }}
{{- else if and $two (eq $given.spread.nodes "preferred") }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
{{- end }}
{{- if and $two (ne $given.spread.zones "none") }}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: {{ $given.spread.zones }}
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
{{- end }}
{{- end -}}

{{/* The probes of a part: (list .Values.core.probes "service of the readiness probe"). */}}
{{- define "evenhand.probes" -}}
{{- $given := index . 0 -}}
startupProbe:
  grpc: {port: 50052}
  {{- toYaml $given.startup | nindent 2 }}
livenessProbe:
  grpc: {port: 50052}
  {{- toYaml $given.liveness | nindent 2 }}
readinessProbe:
  grpc: {port: 50052, service: {{ index . 1 }}}
  {{- toYaml $given.readiness | nindent 2 }}
{{- end -}}

{{/*
Labels and annotations of the pods of a part: (list $ "core" .Values.core). With groups of cores, pods start again when groups or
their addresses change, but not when a partition moves, because running cores and shims learn that by themselves.
*/}}
{{- define "evenhand.podMetadata" -}}
{{- $given := index . 2 -}}
labels:
  {{- include "evenhand.selector" . | nindent 2 }}
  {{- with $given.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := $given.podAnnotations | default dict -}}
{{- with index . 0 -}}
{{- if .Values.core.groups -}}
{{- $places := list -}}
{{- range include "evenhand.groups" . | fromJsonArray -}}
{{- $places = append $places (pick . "name" "addresses") -}}
{{- end -}}
{{- $annotations = set (deepCopy $annotations) "evenhand.io/cores-digest" ($places | toJson | sha256sum | trunc 8) -}}
{{- end -}}
{{- end -}}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Fail for values that only together make no sense; everything else is said by values.schema.json. */}}
{{- define "evenhand.checked" -}}
{{- if and .Values.core.log.url (ne (int .Values.core.replicas) 2) -}}
{{- fail "core.log.url: a log of NATS is shared by two cores; set core.replicas=2" -}}
{{- end -}}
{{- if and (or .Values.core.log.credentialsSecret .Values.core.log.caSecret) (not .Values.core.log.url) -}}
{{- fail "core.log.credentialsSecret, core.log.caSecret: set core.log.url, too" -}}
{{- end -}}
{{- if .Values.core.groups -}}
{{- include "evenhand.checkedGroups" . -}}
{{- end -}}
{{- if and .Values.core.decisionLog.durable (not .Values.core.decisionLog.enabled) -}}
{{- fail "core.decisionLog.durable: set core.decisionLog.enabled=true, too" -}}
{{- end -}}
{{- if and .Values.core.history.passwordSecret (not .Values.core.history.url) -}}
{{- fail "core.history.passwordSecret: set core.history.url, too" -}}
{{- end -}}
{{- if ge (int .Values.tls.job.renewBeforeDays) (int .Values.tls.job.days) -}}
{{- fail "tls.job.renewBeforeDays: must be less than tls.job.days" -}}
{{- end -}}
{{- if and .Values.console.enabled (not .Values.core.tokensSecret) -}}
{{- fail "console.enabled: visitors need tokens, which the core has to know; set core.tokensSecret, too" -}}
{{- end -}}
{{- if and .Values.monitoring.podMonitor.enabled (ne (int .Values.shim.replicas) 2) (not .Values.shim.metrics) -}}
{{- fail "monitoring.podMonitor.enabled: a single shim serves metrics only with shim.metrics=true" -}}
{{- end -}}
{{- end -}}

{{/* Fail for groups of cores that the reader of the table would refuse, or whose objects would have a name that is too long. */}}
{{- define "evenhand.checkedGroups" -}}
{{- $name := include "evenhand.name" . -}}
{{- $names := dict -}}
{{- $owners := dict -}}
{{- $urls := dict -}}
{{- range $index, $group := include "evenhand.groups" . | fromJsonArray -}}
{{- if hasKey $names .name -}}
{{- fail (printf "core.groups: two groups have the name `%s`; the first group has the name in core.group.name" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- range .partitions -}}
{{- $partition := lower . -}}
{{- if hasKey $owners $partition -}}
{{- fail (printf "core.groups: partition `%s` is named by group `%s` and by group `%s`; those of the first group are in core.group.partitions" $partition (get $owners $partition) $group.name) -}}
{{- end -}}
{{- $_ := set $owners $partition $group.name -}}
{{- end -}}
{{- if gt (len (printf "%s-%s" $name .part)) 52 -}}
{{- fail (printf "core.groups: `%s-%s` has more than 52 characters; give the group a shorter name" $name .part) -}}
{{- end -}}
{{- if and .historyUrl (not $.Values.core.history.enabled) -}}
{{- fail (printf "core.groups: group `%s` has a historyUrl; set core.history.enabled=true, too" .name) -}}
{{- end -}}
{{- if and $.Values.core.history.url (not .historyUrl) -}}
{{- fail (printf "core.groups: group `%s` needs a historyUrl: groups cannot share the database of core.history.url" .name) -}}
{{- end -}}
{{- if and .historyUrl (hasKey $urls .historyUrl) -}}
{{- fail (printf "core.groups: the groups `%s` and `%s` have one historyUrl; each group needs a database of its own" (get $urls .historyUrl) .name) -}}
{{- end -}}
{{- if .historyUrl -}}
{{- $_ := set $urls .historyUrl .name -}}
{{- end -}}
{{- end -}}
{{- end -}}
